package kube

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
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

func TestSpacesReachEachOther(t *testing.T) {
	c := newNetwork(t)
	for _, address := range []string{"192.168.77.11", "fd77::11"} {
		for _, space := range []string{Control, Outside} {
			err := Run(c.In(t.Context(), space, "timeout", "1", "bash", "-c", "exec 3<>/dev/tcp/"+address+"/9"))
			if err == nil || !strings.Contains(err.Error(), "refused") {
				t.Errorf("from %s to %s: want a refused connection, got %v", space, address, err)
			}
		}
	}
}

func TestANodeHasItsOwnNameAndFolders(t *testing.T) {
	c := newNetwork(t)
	for _, test := range []struct{ want, command string }{
		{"n1\n", "uname -n"},
		{"/var/log\n", "ls -d /var/log && test ! -e /var/lib/dpkg && touch /run/mine"},
		{"/run/mine\n", "ls /run/mine"},
	} {
		got, err := Output(c.In(t.Context(), "n1", "sh", "-c", test.command))
		if err != nil {
			t.Errorf("%s: %v", test.command, err)
		}
		if !strings.HasSuffix(got, test.want) {
			t.Errorf("%s: want %q, got %q", test.command, test.want, got)
		}
	}
	if _, err := os.Stat("/run/mine"); err == nil {
		t.Error("the host has the node's file")
	}
	mounts := testaid.Read(t, "/proc/self/mounts")
	if strings.Contains(mounts, c.Dir) {
		t.Errorf("the host has mounts of the node:\n%s", mounts)
	}
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
