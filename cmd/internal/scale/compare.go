package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/vmapd/vmapd/cmd/internal/config"
	"github.com/vmapd/vmapd/cmd/internal/scale/cluster"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/sync/kube"
)

// compare returns what has to be written so that the kernel has the rules of the cluster as
// it is now: nothing, if the daemon has done its work. It must have ended.
func (w *world) compare(ctx context.Context) (traffic, error) {
	b, options, err := newBuilder()
	if err != nil {
		return traffic{}, err
	}
	feed(b, w.cluster)
	snapshot := b.Snapshot()
	if p := snapshot.Problems(); len(p) > 0 {
		return traffic{}, fmt.Errorf("%d problems of objects, the first: %w", len(p), p[0])
	}
	var sum traffic
	err = w.ns.Do(func() error {
		backend, err := kernel.Open(options)
		if err != nil {
			return err
		}
		err = backend.Apply(ctx, snapshot)
		for _, f := range model.Families {
			s := backend.Stats(f)
			sum.operations += int(s.Operations)
			sum.bytes += int(s.Bytes)
			sum.batches += int(s.Batches)
		}
		return errors.Join(err, backend.Close())
	})
	if err != nil {
		return sum, fmt.Errorf("compare with the kernel: %w", err)
	}
	return sum, nil
}

// newBuilder returns a builder and a backend with the daemon's configuration.
func newBuilder() (*model.Builder, kernel.Options, error) {
	var f config.Flags
	set := pflag.NewFlagSet("daemon", pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	f.AddFlags(set)
	if err := set.Parse(daemonFlags()); err != nil {
		return nil, kernel.Options{}, fmt.Errorf("read the daemon's flags: %w", err)
	}
	c, err := config.Load(&f)
	if err != nil {
		return nil, kernel.Options{}, fmt.Errorf("read the daemon's flags: %w", err)
	}
	return model.NewBuilder(c.Model()), kernel.Options{Log: slog.New(slog.DiscardHandler), Counters: c.ServiceCounters}, nil
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
	b.SetHostAddresses(cluster.NodeAddresses)
}
