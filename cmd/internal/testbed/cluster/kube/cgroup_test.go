package kube

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// testGroups returns the machine's groups, and those of version 2 of a machine that has both.
func testGroups(t *testing.T) map[string]groups {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("control groups need root")
	}
	const name = "vmapd-test-groups"
	g, err := findGroups(name)
	if err != nil {
		t.Skip(err)
	}
	all := map[string]groups{"found": g}
	for _, root := range g.roots {
		var stat unix.Statfs_t
		if err := unix.Statfs(root, &stat); err != nil {
			t.Fatal(err)
		}
		if stat.Type == unix.CGROUP2_SUPER_MAGIC && !g.unified {
			all["version 2"] = groups{name: name, roots: []string{root}, leading: root, unified: true}
		}
	}
	return all
}

func TestAllProcessesOfAGroupEndWithIt(t *testing.T) {
	for name, g := range testGroups(t) {
		t.Run(name, func(t *testing.T) {
			c := &Cluster{Config: Config{Dir: t.TempDir()}, groups: g}
			if err := g.make(system); err != nil {
				if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
					t.Skip(err) // in a container
				}
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := g.kill(); err != nil {
					t.Error(err)
				}
			})
			for _, dir := range []string{"log", "process"} {
				if err := os.Mkdir(c.path(dir), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			p := c.Process("shell")
			p.Args = []string{"sh", "-c", "sleep 1000 & sleep 1000"}
			if err := p.launch(exec.Command(p.Args[0], p.Args[1:]...), nil); err != nil {
				t.Fatal(err)
			}
			pids, err := g.processes()
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(pids, p.PID()) {
				t.Errorf("want %d in the group, got %v", p.PID(), pids)
			}
			if slices.Contains(pids, os.Getpid()) {
				t.Errorf("this process is in the group: %v", pids)
			}
			again := c.Process("shell")
			if want, got := p.PID(), again.PID(); want != got {
				t.Errorf("want the process %d to be found again, got %d", want, got)
			}
			if err := g.kill(); err != nil {
				t.Fatal(err)
			}
			if pid := again.PID(); pid != 0 {
				t.Errorf("process %d still runs", pid)
			}
			for _, root := range g.roots {
				if _, err := os.Stat(filepath.Join(root, g.name)); err == nil {
					t.Errorf("there still is a group in %s", root)
				}
			}
			if err := again.Stop(context.Background(), unix.SIGTERM); err != nil {
				t.Errorf("stop a process that has ended: %v", err)
			}
		})
	}
}
