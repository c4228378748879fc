package cluster

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model/modeltest/testlog"
)

// A name that no Node of the cluster has is an event, and a reason for which the process is not
// ready, until there is such a Node. Cluster IPs work meanwhile, and nothing is restarted.
func TestAWrongNodeName(t *testing.T) {
	t.Parallel()
	c := vmapdtest.NewCluster(t)
	const wrong = lab.NodeName + ".example.org"
	socket := filepath.Join(t.TempDir(), "vmapd.sock")
	p := c.Start(t, "--kubeconfig", c.Kubeconfig(), "--hostname-override", wrong, "--socket", socket)
	p.WaitFor(t, "msg=ready")
	vmapdtest.Eventually(t, func() string {
		if got := vmapdtest.Get(c.Client, vmapdtest.HealthURL+"/readyz"); got.Status != http.StatusServiceUnavailable || !strings.Contains(got.Body, `no Node "`+wrong+`"`) {
			return "/readyz says " + got.String()
		}
		return ""
	})
	if got := vmapdtest.Problems(vmapdtest.Overview(t, socket)); !strings.Contains(got, `the cluster has no Node "`+wrong+`"`) {
		t.Errorf("status says %s", got)
	}
	vmapdtest.WantStatus(t, c.Client, vmapdtest.HealthURL+"/livez", http.StatusOK)
	c.Ask(t, vmapdtest.WebVIP)

	event := c.WantEvent(t, "NodeNotFound", "Node", wrong, "--hostname-override")
	if event.Type != "Warning" || !strings.Contains(event.Note, "kubectl get nodes") {
		t.Errorf("the event says %q", event.Note)
	}
	if !strings.Contains(p.Log.String(), `level=WARN msg="doctor has a finding" check=node`) {
		t.Errorf("the log does not tell")
	}

	late := vmapdtest.OurNode()
	late.Name = wrong
	c.API.Set(late)
	vmapdtest.WantStatus(t, c.Client, vmapdtest.HealthURL+"/readyz", http.StatusOK)
	p.WaitFor(t, "a finding of doctor has ended")
	c.API.Delete(late)
	vmapdtest.WantStatus(t, c.Client, vmapdtest.HealthURL+"/readyz", http.StatusOK)
	p.MustStay(t)
}

// With --from, one line says that it is this machine whose rules change, and which Node the files lack. In another
// network namespace than the machine's, and with the Node, there is nothing to say.
func TestFilesOfAnotherNode(t *testing.T) {
	t.Parallel()
	w := labtest.New(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	vmapd := filepath.Join(t.TempDir(), "vmapd")
	if err := os.Symlink(program, vmapd); err != nil {
		t.Fatal(err)
	}
	files := []string{"--from", vmapdtest.Demo(t), "--backend=userspace", "--metrics-port=0", "--healthz-port=0", "--socket="}
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
	}{{lab.NodeName, false, nil}, {lab.NodeName, true, []string{machine}}, {"other", false, []string{node}}, {"other", true, []string{machine, node}}} {
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

// What the API server does not answer any more is a problem in status, with the time since when.
func TestStatusReportsThatTheAPIServerIsAway(t *testing.T) {
	t.Parallel()
	c := vmapdtest.NewCluster(t)
	socket := filepath.Join(t.TempDir(), "vmapd.sock")
	c.StartReady(t, "--socket", socket)
	now := func() string { return vmapdtest.Problems(vmapdtest.Overview(t, socket)) }
	if got := now(); got != "" {
		t.Errorf("status says at first:\n%s", got)
	}
	c.Forbid()
	c.API.DropWatches()
	vmapdtest.Eventually(t, func() string {
		if got := now(); !strings.Contains(got, "services can't be read from https://") || !strings.Contains(got, "is forbidden") {
			return "status says:\n" + got
		}
		return ""
	})
	vmapdtest.WantStatus(t, c.Client, vmapdtest.HealthURL+"/readyz", http.StatusOK)
	c.API.SetRules(vmapdtest.DeployedRules(t))
	vmapdtest.Eventually(t, func() string {
		if got := now(); got != "" {
			return "status still says:\n" + got
		}
		return ""
	})
}
