package kube

import (
	"context"
	"fmt"
)

// InstallDNS installs CoreDNS as the cluster's DNS, and waits until it is ready, for which it needs
// a Service proxy.
func (c *Cluster) InstallDNS(ctx context.Context) error {
	c.Log.Info("installing CoreDNS")
	manifest, err := dnsManifest()
	if err != nil {
		return err
	}
	if err := c.Apply(ctx, manifest); err != nil {
		return fmt.Errorf("install CoreDNS: %w", err)
	}
	return c.RolledOut(ctx, "kube-system", "deployment/coredns")
}

func dnsManifest() (string, error) {
	return fill("coredns.yaml", map[string]string{"Domain": ClusterDomain, "DNS": DNSAddress, "Image": CoreDNSImage})
}
