package kube

import (
	"context"
	"fmt"
)

// InstallDNS installs CoreDNS as the cluster's DNS, and waits until it is ready, for which it needs
// a Service proxy.
func (c *Cluster) InstallDNS(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	c.Log.Info("installing CoreDNS")
	manifest, err := dnsManifest()
	if err != nil {
		return err
	}
	if err := c.Apply(ctx, manifest); err != nil {
		return fmt.Errorf("install CoreDNS: %w", err)
	}
	if _, err := c.Kubectl(ctx, "--namespace=kube-system", "rollout", "status", "deployment/coredns", "--timeout=10m"); err != nil {
		return fmt.Errorf("wait for CoreDNS: %w", err)
	}
	return nil
}

func dnsManifest() (string, error) {
	return fill("coredns.yaml", map[string]string{"Domain": ClusterDomain, "DNS": DNSAddress, "Image": CoreDNSImage})
}
