package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/vmapd/vmapd/cmd/internal/testbed/scale/cluster"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/sync/kube"
)

// compare returns how many operations the kernel still needs for the present cluster: none if vmapd has programmed
// everything. It must have ended.
func (w *world) compare(ctx context.Context) (operations int, err error) {
	b := model.NewBuilder(config())
	feed(b, w.cluster)
	snapshot := b.Snapshot()
	if p := snapshot.Problems(); len(p) > 0 {
		return 0, fmt.Errorf("%d problems of objects, the first: %w", len(p), p[0])
	}
	err = w.ns.Do(func() error {
		backend, err := kernel.Open(kernel.Options{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		err = backend.Apply(ctx, snapshot)
		for _, f := range model.Families {
			operations += int(backend.Stats(f).Operations)
		}
		return errors.Join(err, backend.Close())
	})
	if err != nil {
		return operations, fmt.Errorf("compare with the kernel: %w", err)
	}
	return operations, nil
}

// config is the configuration that the flags and defaults of vmapd make. The package of its flags is internal to vmapd.
func config() model.Config {
	return model.Config{
		NodeName: cluster.NodeName, NodePortAddresses: model.NodePortAddresses{Primary: true},
		LocalPods: model.LocalPods{ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix(cluster.PodCIDR)}},
	}
}

// feed gives all objects to a builder, as the informers do.
func feed(b *model.Builder, c *cluster.Cluster) {
	for obj := range c.Objects() {
		switch o := obj.(type) {
		case *corev1.Service:
			b.SetService(kube.Service(o))
		case *discoveryv1.EndpointSlice:
			b.SetEndpointSlice(kube.EndpointSlice(o))
		case *corev1.Node:
			b.SetNode(kube.Node(o))
		case *networkingv1.ServiceCIDR:
			b.SetServiceCIDR(kube.ServiceCIDR(o))
		}
	}
	b.SetHostAddresses([]netip.Addr{cluster.NodeAddress})
}
