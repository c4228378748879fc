package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// In prepares a program to run in a space: Control, Outside or a node. It is killed when ctx
// ends. In a node, it has the node's mounts, too, and starts in the folder /.
func (c *Cluster) In(ctx context.Context, space string, args ...string) *exec.Cmd {
	holder := c.holder(space)
	enter := []string{"--target", strconv.Itoa(holder.PID()), "--net"}
	if nodeNumber(space) > 0 {
		enter = append(enter, "--mount", "--uts")
	}
	cmd := exec.CommandContext(ctx, "nsenter", append(append(enter, "--"), args...)...)
	if holder.PID() == 0 {
		cmd.Err = fmt.Errorf("run %s: the cluster %s has no %s, or it does not run", args[0], c.Name, space)
	}
	return cmd
}

// holder is the process that a space lives as long as, at least.
func (c *Cluster) holder(space string) *Process { return c.Process("space-" + space) }

// makeSpace makes a space without links.
func (c *Cluster) makeSpace(space string) error {
	isNode := nodeNumber(space) > 0
	if isNode {
		if err := c.makeFolders(space); err != nil {
			return err
		}
	}
	p := c.holder(space)
	p.Space, p.Args = space, []string{"sleep", "infinity"}
	err := p.launch(exec.Command(p.Args[0], p.Args[1:]...), func() error {
		flags := unix.CLONE_NEWNET
		if isNode {
			flags |= unix.CLONE_NEWNS | unix.CLONE_NEWUTS
		}
		if err := unix.Unshare(flags); err != nil {
			return fmt.Errorf("make namespaces, which needs root: %w", err)
		}
		if !isNode {
			return nil
		}
		return errors.Join(unix.Sethostname([]byte(space)), c.mountFolders(space))
	})
	if err != nil {
		return err
	}
	return c.inside(space, func(ns *lab.Namespace) error { return ns.Up("lo") })
}

// Folders that a node has for itself. kubelet, containerd, runc and CNI plugins keep state there.
var ownFolders = []string{"run", "var"}

func (c *Cluster) makeFolders(node string) error {
	dir := c.path("nodes", node)
	for _, sub := range []string{"run/lock", "var/lib", "var/log", "var/cache", "var/tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	return os.Symlink("/run", filepath.Join(dir, "var/run"))
}

// mountFolders puts the node's own folders in the place of the host's, for this thread. The host
// sees none of it; containers may share mounts with the node, as kubelet requires.
func (c *Cluster) mountFolders(node string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("leave the host's mounts: %w", err)
	}
	for _, f := range ownFolders {
		if err := unix.Mount(c.path("nodes", node, f), "/"+f, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount /%s: %w", f, err)
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts with containers: %w", err)
	}
	return nil
}

// inside calls fn with the network namespace of a space.
func (c *Cluster) inside(space string, fn func(*lab.Namespace) error) error {
	p := c.holder(space)
	if p.PID() == 0 {
		return fmt.Errorf("the cluster %s has no %s, or it does not run", c.Name, space)
	}
	ns, err := lab.OpenNamespace(space, fmt.Sprintf("/proc/%d/ns/net", p.PID()))
	if err != nil {
		return err
	}
	return errors.Join(fn(ns), ns.Close())
}

// onThread runs fn on a thread that ends with it: fn may change the thread in ways that can't be
// undone. The first thread of a process never ends, so it is not used.
func onThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			done <- onThread(fn)
			runtime.UnlockOSThread()
			return
		}
		done <- fn()
	}()
	return <-done
}
