package cluster

import (
	"slices"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model/modeltest/testlog"
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
		args := append(files, "--hostname-override", name)
		if own { // the first process of a PID namespace is in this one, too
			args = append([]string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc", vmapd}, args...)
		} else {
			args = append([]string{vmapd}, args...)
		}
		p := vmapdtest.Process{Cmd: w.Node.Command(t.Context(), args[0], args[1:]...), Log: &testlog.Log{}}
		p.Cmd.Stderr = p.Log
		if err := p.Cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = p.Cmd.Process.Kill(); _ = p.Cmd.Wait() }()
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
	}{{lab.NodeName, false, nil}, {lab.NodeName, true, []string{machine}}, {"other", false, []string{node}}, {
		"other",
		true,
		[]string{machine, node},
	}} {
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
