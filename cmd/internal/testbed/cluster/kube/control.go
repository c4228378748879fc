package kube

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Programs of the control plane with processes that others restart.
const (
	apiserver         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
)

const startLimit = 10 * time.Minute // for machines that are emulated, or busy with other things

// startControlPlane starts etcd, the API server and the controllers.
func (c *Cluster) startControlPlane(ctx context.Context) error {
	if err := c.PKI(ctx, "make_all"); err != nil {
		return err
	}
	if err := os.WriteFile(c.path("audit.yaml"), []byte(c.fill("audit.yaml", nil)), 0o644); err != nil {
		return err
	}
	for _, name := range []string{"etcd", apiserver, controllerManager, "kube-scheduler"} {
		if err := c.startProgram(ctx, name, name, Control, nil); err != nil {
			return err
		}
		if name == apiserver {
			if err := c.AwaitAPIServer(ctx); err != nil {
				return err
			}
		}
	}
	return c.Apply(ctx, c.fill("admission.yaml", nil))
}

// startProgram starts a program of KubeDir with the flags of its template, one in each line, as a process.
func (c *Cluster) startProgram(ctx context.Context, program, process, space string, more map[string]string) error {
	p := c.Process(process)
	p.Space, p.Args = space, []string{filepath.Join(c.KubeDir, program)}
	for line := range strings.Lines(c.fill(program+".args", more)) {
		if !strings.HasPrefix(line, "#") {
			p.Args = append(p.Args, strings.TrimSpace(line))
		}
	}
	return p.Start(ctx)
}

// AwaitAPIServer waits until the API server is ready, for instance after a restart.
func (c *Cluster) AwaitAPIServer(ctx context.Context) error {
	return Until(ctx, startLimit, "wait for the API server", func() error {
		_, err := c.Kubectl(ctx, "get", "--raw", "/readyz", "--request-timeout=10s")
		return err
	}, c.Process("etcd"), c.Process(apiserver))
}

// PKI runs commands in the folder of keys and certificates, with the functions of pki.sh.
func (c *Cluster) PKI(ctx context.Context, commands string) error {
	cmd := exec.CommandContext(ctx, "bash", "-c", c.fill("pki.sh", nil)+commands)
	cmd.Dir = c.path("pki")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make keys and certificates: %s: %w: %s", commands, err, out)
	}
	return nil
}

// InstallDNS installs CoreDNS as the cluster's DNS, and waits until it is ready, for which it needs
// a Service proxy.
func (c *Cluster) InstallDNS(ctx context.Context) error {
	c.Log.Info("installing CoreDNS")
	if err := c.Apply(ctx, c.fill("coredns.yaml", map[string]string{"Image": CoreDNSImage})); err != nil {
		return fmt.Errorf("install CoreDNS: %w", err)
	}
	return c.RolledOut(ctx, "kube-system", "deployment/coredns")
}
