package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// newNetwork makes the network of a cluster with a node, in which nothing runs yet.
func newNetwork(t *testing.T) *Cluster {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("namespaces and control groups need root")
	}
	if _, err := exec.LookPath("nsenter"); err != nil {
		t.Skip(err)
	}
	c, err := connect(Config{Name: fmt.Sprintf("t%d", os.Getpid()), Dir: t.TempDir(), Nodes: 1})
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := c.Down(); err != nil {
			t.Error(err)
		}
	})
	if err := c.groups.make(system); errors.Is(err, os.ErrPermission) || errors.Is(err, unix.EROFS) {
		t.Skip(err) // in a container
	} else if err != nil {
		t.Fatal(err)
	}
	if err := c.makeFolder(); err != nil {
		t.Fatal(err)
	}
	for _, step := range []func() error{
		c.buildNetwork,
		func() error { return c.makeSpace("n1") },
		func() error { return c.plugIn("n1") },
	} {
		if err := step(); errors.Is(err, unix.EPERM) {
			t.Skip(err)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// reach connects to a port that nothing listens on.
func reach(t *testing.T, c *Cluster, space, address string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := c.Dial(ctx, space, "tcp", address)
	return err
}

func TestSpacesReachEachOther(t *testing.T) {
	c := newNetwork(t)
	for _, address := range []string{"192.168.77.11:9", "[fd77::11]:9"} {
		for _, space := range []string{Control, Outside} {
			if err := reach(t, c, space, address); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("from %s to %s: want %v, got %v", space, address, unix.ECONNREFUSED, err)
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
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), c.Dir) {
		t.Errorf("the host has mounts of the node:\n%s", mounts)
	}
}

func TestAClusterThatIsClearedLeavesNothing(t *testing.T) {
	c := newNetwork(t)
	left := c.In(t.Context(), "n1", "sleep", "1000") // as a program that somebody has started in a node
	if err := (&Process{Name: "left", cluster: c}).launch(left, nil); err != nil {
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
	if pids, err := c.groups.processes(); err != nil || len(pids) > 0 {
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
