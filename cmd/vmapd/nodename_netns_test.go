package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// A name that no Node of the cluster has is an event, and a reason for which the process is not
// ready, until there is such a Node. Cluster IPs work meanwhile, and nothing is restarted.
func TestAWrongNodeName(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	const wrong = lab.NodeName + ".example.org"
	socket := filepath.Join(t.TempDir(), "vmapd.sock")
	p := c.start(t, "--kubeconfig", c.kubeconfig(), "--hostname-override", wrong, "--socket", socket)
	p.waitFor(t, "msg=ready")
	eventually(t, func() string {
		if got := get(c.Client, nil, healthURL+"/readyz"); got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, `no Node "`+wrong+`"`) {
			return "/readyz says " + got.String()
		}
		return ""
	})
	if got := problems(overview(t, socket)); !strings.Contains(got, `the cluster has no Node "`+wrong+`"`) {
		t.Errorf("status says %s", got)
	}
	wantStatus(t, c.Client, healthURL+"/livez", http.StatusOK)
	c.ask(t, webVIP)

	event := c.wantEvent(t, "NodeNotFound", "Node", wrong, "--hostname-override")
	if event.Type != "Warning" || !strings.HasSuffix(event.Note, `"kubectl get nodes" lists the names`) {
		t.Errorf("the event says %q", event.Note)
	}
	if !strings.Contains(p.log.String(), `level=WARN msg="not ready"`) {
		t.Errorf("the log does not tell")
	}

	late := node()
	late.Name = wrong
	c.api.Set(late)
	wantStatus(t, c.Client, healthURL+"/readyz", http.StatusOK)
	p.waitFor(t, "the cluster has this node's Node now")
	c.api.Delete(late)
	wantStatus(t, c.Client, healthURL+"/readyz", http.StatusOK)
	p.mustStay(t)
}

// What the API server does not answer any more is a problem in status, with the time since when.
func TestStatusReportsThatTheAPIServerIsAway(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	socket := filepath.Join(t.TempDir(), "vmapd.sock")
	p := c.start(t, "--kubeconfig", c.kubeconfig(), "--hostname-override", lab.NodeName, "--socket", socket)
	p.waitFor(t, "msg=ready")
	now := func() string { return problems(overview(t, socket)) }
	if got := now(); got != "" {
		t.Errorf("status says at first:\n%s", got)
	}
	c.forbid()
	c.api.DropWatches()
	eventually(t, func() string {
		if got := now(); !strings.Contains(got, "services can't be read from https://") || !strings.Contains(got, "is forbidden") {
			return "status says:\n" + got
		}
		return ""
	})
	wantStatus(t, c.Client, healthURL+"/readyz", http.StatusOK)
	c.api.SetRules(deployedRules(t))
	eventually(t, func() string {
		if got := now(); got != "" {
			return "status still says:\n" + got
		}
		return ""
	})
}
