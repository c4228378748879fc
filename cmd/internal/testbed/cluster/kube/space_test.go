package kube

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model/nettest"
)

// newCluster makes a folder and control groups of a cluster in which nothing runs yet.
func newCluster(t *testing.T) *Cluster {
	t.Helper()
	nettest.NeedRoot(t)
	for _, program := range []string{"nsenter", "unshare", "ip"} {
		if _, err := exec.LookPath(program); err != nil {
			nettest.Missing(t, err)
		}
	}
	c := connect(Config{Name: fmt.Sprintf("t%d", os.Getpid()), Dir: t.TempDir(), Nodes: 1})
	t.Cleanup(func() {
		if err := c.Down(); err != nil {
			t.Error(err)
		}
	})
	if err := c.makeFolder(); err != nil {
		t.Skip(err) // in a container
	}
	return c
}

// newNetwork makes the network of a cluster with a node, in which nothing runs yet.
func newNetwork(t *testing.T) *Cluster {
	t.Helper()
	c := newCluster(t)
	for _, err := range []error{c.buildNetwork(t.Context()), c.plugIn(t.Context(), "n1")} {
		if err != nil && strings.Contains(err.Error(), "not permitted") {
			t.Skip(err)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func TestAClusterThatIsClearedLeavesNothing(t *testing.T) {
	c := newNetwork(t)
	left := c.In(t.Context(), "n1", "sleep", "1000") // as a program that somebody has started in a node
	if err := (&Process{Name: "left", cluster: c}).launch(left); err != nil {
		t.Fatal(err)
	}
	again, err := Open(c.Dir, nil) // as another command would
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Down(); err != nil {
		t.Fatal(err)
	}
	for _, space := range []string{Control, Outside, bridge, "n1"} {
		if err := c.In(t.Context(), space, "true").Run(); err == nil {
			t.Errorf("%s still is there", space)
		}
	}
	if pids, err := c.inGroups("processes"); err != nil || pids != "" {
		t.Errorf("want no processes, got %v, %v", pids, err)
	}
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "log" && e.Name() != "images" {
			t.Errorf("%s is left", e.Name())
		}
	}
}
