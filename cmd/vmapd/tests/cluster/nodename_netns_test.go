package cluster

import (
	"slices"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// With --from, one line says that it is this machine whose rules change, and which Node the files lack. In another
// network namespace than the machine's, and with the Node, there is nothing to say.
func TestFilesOfAnotherNode(t *testing.T) {
	t.Parallel()
	w := labtest.New(t)
	vmapd := vmapdtest.Program(t)
	files := []string{
		"--from", vmapdtest.Demo(t), "--backend=userspace", "--metrics-port=0", "--healthz-port=0",
		"--socket=",
	}
	lines := func(name string, own bool) (found []string) {
		t.Helper()
		args := append([]string{vmapd, "--hostname-override", name}, files...)
		if own { // the first process of a PID namespace is in this one, too
			args = append([]string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"}, args...)
		}
		p := vmapdtest.Launch(t, w.Node, args[0], args...)
		defer p.Kill(t)
		p.WaitFor(t, "msg=ready")
		for line := range strings.Lines(p.Log.String()) {
			if strings.Contains(line, "--from") {
				found = append(found, line)
			}
		}
		return found
	}
	const machine, node = "this machine's own network namespace", `the files have no Node \"other\"`
	for _, tt := range []struct {
		name string
		own  bool
		want []string
	}{
		{lab.NodeName, false, nil},
		{lab.NodeName, true, []string{machine}},
		{"other", false, []string{node}},
		{"other", true, []string{machine, node}},
	} {
		got := lines(tt.name, tt.own)
		if len(got) != min(1, len(tt.want)) {
			t.Errorf("%+v: %d lines: %q", tt, len(got), got)
		}
		for _, want := range []string{machine, node} {
			if strings.Contains(strings.Join(got, ""), want) != slices.Contains(tt.want, want) {
				t.Errorf("%+v: %q", tt, got)
			}
		}
	}
}
