package kube

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Kubeconfig is the file with which the administrator uses the API server, from any space.
func (c *Cluster) Kubeconfig() string { return c.path("pki/admin.conf") }

// Kubectl runs kubectl as administrator and returns its standard output. Standard error is in the
// error.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return Output(c.KubectlCommand(ctx, args...))
}

// Apply creates or changes the objects of a manifest.
func (c *Cluster) Apply(ctx context.Context, manifest string) error {
	cmd := c.KubectlCommand(ctx, "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(manifest)
	return Run(cmd)
}

// RolledOut waits until a DaemonSet or Deployment, such as daemonset/vmapd, is as it should be.
func (c *Cluster) RolledOut(ctx context.Context, namespace, object string) error {
	_, err := c.Kubectl(ctx, "--namespace="+namespace, "rollout", "status", object, "--timeout=10m")
	return err
}

// KubectlCommand prepares kubectl. It runs no plugin if a flag comes before the plugin's name, and a plugin runs
// kubectl itself: so the environment has the configuration, and the folders of both.
func (c *Cluster) KubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := c.In(ctx, Control, append([]string{filepath.Join(c.KubeDir, "kubectl")}, args...)...)
	path := strings.Join([]string{c.Plugins(), c.KubeDir, os.Getenv("PATH")}, string(os.PathListSeparator))
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "PATH="+path)
	return cmd
}

// Plugins is the folder of vmapd, which is a plugin of kubectl, too.
func (c *Cluster) Plugins() string { return c.path("plugins") }

// Output runs a program and returns its standard output. The error has the command and its standard error.
func Output(cmd *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err != nil {
		args := cmd.Args[1+slices.Index(cmd.Args, "--"):] // of nsenter, if it is one of In
		err = fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), err
}

// Run is Output for programs that write nothing of interest.
func Run(cmd *exec.Cmd) error {
	_, err := Output(cmd)
	return err
}
