package cluster

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
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
	if event.Type != "Warning" || !strings.HasSuffix(event.Note, `"kubectl get nodes" lists the names`) {
		t.Errorf("the event says %q", event.Note)
	}
	if !strings.Contains(p.Log.String(), `level=WARN msg="not ready"`) {
		t.Errorf("the log does not tell")
	}

	late := vmapdtest.OurNode()
	late.Name = wrong
	c.API.Set(late)
	vmapdtest.WantStatus(t, c.Client, vmapdtest.HealthURL+"/readyz", http.StatusOK)
	p.WaitFor(t, "the cluster has this node's Node now")
	c.API.Delete(late)
	vmapdtest.WantStatus(t, c.Client, vmapdtest.HealthURL+"/readyz", http.StatusOK)
	p.MustStay(t)
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
