package cli

import (
	"bytes"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/cli"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// status and doctor say with which devices the fast path is on, and how many connections take it, or what the
// kernel lacks.
func TestTheDaemonTellsTheFastPath(t *testing.T) {
	w := labtest.New(t)
	socket := filepath.Join(t.TempDir(), "vmapd.sock")
	vmapdtest.StartDemo(t, w.Node, "--backend=nftables", "--socket", socket, "--fast-path=auto")
	told := func() string {
		var stdout, stderr bytes.Buffer
		code := -1
		_ = w.Node.Do(func() error {
			code = cli.Run(t.Context(), []string{"doctor", "--socket", socket}, nil, &stdout, &stderr)
			return nil
		})
		if code == 1 {
			t.Fatalf("doctor: %s", &stderr)
		}
		return strings.Join(strings.Fields(stdout.String()), " ")
	}
	want := func(pattern string) {
		t.Helper()
		vmapdtest.Eventually(t, func() string {
			if text := told(); !regexp.MustCompile("fast-path " + pattern).MatchString(text) {
				return "no " + pattern + " in: " + text
			}
			return ""
		})
	}
	if vmapdtest.LacksFastPath(t) != nil {
		want(`IPv4: not possible: .*`)
		return
	}
	const devices = `on, with \d+ devices \([a-z0-9-]+, .*\)`
	want(`IPv4: ` + devices + `; IPv6: ` + devices)
}
