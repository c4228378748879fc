package cli

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/cli"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// Each command that speaks of endpoints names one that is ejected, with the reason.
func TestTheDaemonTellsWhatIsEjected(t *testing.T) {
	t.Parallel()
	vmapdtest.NeedNFT(t)
	w := labtest.New(t)
	socket := filepath.Join(t.TempDir(), "vmapd.sock")
	p := vmapdtest.StartDemo(t, w.Node, "--socket", socket, "--outlier-detection")
	tell := func(args ...string) string {
		var stdout, stderr bytes.Buffer
		_ = w.Node.Do(func() error {
			cli.Run(t.Context(), append(args, "--socket", socket), nil, &stdout, &stderr)
			return nil
		})
		return strings.Join(strings.Fields(stdout.String()+stderr.String()), " ")
	}
	if text := tell("doctor"); !strings.Contains(text, "ok endpoints all endpoints with clients answer") {
		t.Errorf("doctor, before: %s", text)
	}
	vmapdtest.Feed(t, w.Pods()[1].Namespace, "table inet dead { chain in { type filter hook prerouting priority -400; policy drop; }; }", "nft", "-f", "-")
	vmapdtest.CallUntil(t, w.Client, vmapdtest.WebVIP, func() bool {
		return strings.Contains(tell("services"), "1 endpoint ejected")
	})
	const why = "unanswered, probe timed out"
	for command, wants := range map[string][]string{
		"services -A":                           {"default web 80/tcp 172.30.0.10 2 ", "forwarded; 1 endpoint ejected"},
		"status default/web":                    {"forwarded; 1 endpoint ejected (since", "10.0.0.3:8080/tcp", "ejected by this node: ", why},
		"explain --from 203.0.113.9 svc/web:80": {"2 of 3 endpoints used", "10.0.0.3:8080 ejected by this node", why, "=> forwarded to 10.0.0.2:8080 or 10.0.0.4:8080"},
		"doctor":                                {"warn endpoints 1 endpoint silent: 10.0.0.3:8080 for ", why},
	} {
		text := tell(strings.Fields(command)...)
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("vmapd %s does not say %q:\n%s", command, want, text)
			}
		}
	}
	p.WaitFor(t, `level=WARN msg="an endpoint does not answer; new connections go to others, unless most are silent" endpoint=10.0.0.3:8080`)
}
