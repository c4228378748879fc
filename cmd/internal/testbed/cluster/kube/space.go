package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
)

// In prepares a program to run in a space: Control, Outside or a node. It is killed when ctx
// ends. In a node, it has the node's mounts, too, and starts in the folder /.
func (c *Cluster) In(ctx context.Context, space string, args ...string) *exec.Cmd {
	pid := c.holder(space).PID()
	enter := []string{"--target", strconv.Itoa(pid), "--net"}
	if nodeNumber(space) > 0 {
		enter = append(enter, "--mount", "--uts")
	}
	cmd := exec.CommandContext(ctx, "nsenter", append(append(enter, "--"), args...)...)
	if pid == 0 {
		cmd.Err = fmt.Errorf("run %s: the cluster has no %s, or it does not run", args[0], space)
	}
	return cmd
}

// holder is the process that a space lives as long as, at least.
func (c *Cluster) holder(space string) *Process { return c.Process("space-" + space) }

// makeSpace makes a space without links.
func (c *Cluster) makeSpace(ctx context.Context, space string) error {
	values, flags := map[string]string{"Space": space, "Forward": "0", "Folder": ""}, []string{"--net"}
	if nodeNumber(space) > 0 {
		values["Forward"], values["Folder"] = "1", c.path("nodes", space)
		if err := os.MkdirAll(values["Folder"], 0o755); err != nil {
			return err
		}
		flags = append(flags, "--mount", "--uts")
	}
	p := c.holder(space)
	p.Space, p.Args = space, append(append([]string{"unshare"}, flags...), "sh", "-c", c.fill("space.sh", values))
	if err := p.launch(exec.Command(p.Args[0], p.Args[1:]...)); err != nil {
		return err
	}
	// Before, it may still be in the namespaces of this process.
	return Until(ctx, startLimit, "set up "+space, func() error {
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.PID()))
		if err == nil && string(comm) != "sleep\n" {
			err = errors.New("the script still runs")
		}
		return err
	}, p)
}
