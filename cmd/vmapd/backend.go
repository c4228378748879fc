package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// dataplane is a backend, ready to run.
type dataplane struct {
	reconcile.Backend
	name  string
	with  string // which variant of a program, if there are several
	why   string // it was chosen
	close func() error
	// nft is set for nftables: what others do to its tables is noticed at once.
	nft *kernel.Backend
	// resync is how often the backend is compared with the node; 0 is once an hour.
	resync time.Duration
	// others remove what other backends left on the node, and kube-proxy.
	others []func(ctx context.Context) error
}

// kubeProxyTable is the table of kube-proxy's nftables mode.
const kubeProxyTable = "kube-proxy"

// openBackend opens the backend that --backend names or, for auto, the first that works
// here. Whatever another one left is removed once this one has done its work.
func (d *daemon) openBackend(ctx context.Context, log *slog.Logger) (*dataplane, error) {
	switch d.backend {
	case nftables:
		return d.openNFT(log, "--backend=nftables")
	case iptablesBackend:
		return d.openIPTables(log, "--backend=iptables")
	case ipvsBackend:
		return d.openIPVS(log, "--backend=ipvs")
	}
	p, err := d.openNFT(log, "the kernel has all that is needed")
	var lacks *kernel.UnsupportedError
	if !errors.As(err, &lacks) {
		return p, err
	}
	why := fmt.Sprintf("the kernel lacks %s", lacks.Feature)
	log.LogAttrs(ctx, slog.LevelWarn, "no nftables here", slog.Any("err", err))
	p, ipvsErr := d.openIPVS(log, why)
	var lacksToo *host.UnsupportedError
	if !errors.As(ipvsErr, &lacksToo) {
		return p, ipvsErr
	}
	log.LogAttrs(ctx, slog.LevelWarn, "no IPVS here", slog.Any("err", ipvsErr))
	p, iptablesErr := d.openIPTables(log, fmt.Sprintf("%s, and there is no %s", why, lacksToo.Feature))
	if iptablesErr != nil {
		return nil, errors.Join(err, ipvsErr, iptablesErr)
	}
	return p, nil
}

func (d *daemon) openNFT(log *slog.Logger, why string) (*dataplane, error) {
	o, err := d.ipvsOptions()
	if err != nil {
		return nil, err
	}
	b, err := kernel.Open(kernel.Options{Log: log})
	if err != nil {
		return nil, err
	}
	return &dataplane{
		Backend: b, name: nftables, why: why, nft: b, close: b.Close,
		others: []func(context.Context) error{
			func(context.Context) error { return kernel.RemoveTables(kubeProxyTable) },
			func(ctx context.Context) error { return host.RemoveRules(ctx, nil) },
			func(ctx context.Context) error { return host.RemoveIPVS(ctx, o) },
		},
	}, nil
}

func (d *daemon) openIPTables(log *slog.Logger, why string) (*dataplane, error) {
	o, err := d.ipvsOptions()
	if err != nil {
		return nil, err
	}
	b, err := host.OpenIPTables(d.iptablesOptions(), log)
	if err != nil {
		return nil, err
	}
	return &dataplane{
		Backend: b, name: iptablesBackend, with: b.Variant(), why: why, close: func() error { return nil },
		resync: d.syncPeriod,
		others: []func(context.Context) error{
			func(context.Context) error { return kernel.RemoveTables(nft.TableName, kubeProxyTable) },
			func(ctx context.Context) error { return host.RemoveRules(ctx, b) },
			func(ctx context.Context) error { return host.RemoveIPVS(ctx, o) },
		},
	}, nil
}

func (d *daemon) openIPVS(log *slog.Logger, why string) (*dataplane, error) {
	o, err := d.ipvsOptions()
	if err != nil {
		return nil, err
	}
	b, err := host.OpenIPVS(o, log)
	if err != nil {
		return nil, err
	}
	return &dataplane{
		Backend: b, name: ipvsBackend, with: b.Variant(), why: why, close: b.Close, resync: d.ipvsSyncPeriod,
		others: []func(context.Context) error{
			func(context.Context) error { return kernel.RemoveTables(nft.TableName, kubeProxyTable) },
			func(ctx context.Context) error { return host.RemoveRules(ctx, nil) },
			func(ctx context.Context) error { return host.RemoveKubeProxyIPVS(ctx) },
		},
	}, nil
}

// Apply applies s and, the first time that this goes well, removes what other backends left:
// not before, so that connections always find their way.
func (p *dataplane) Apply(ctx context.Context, s *model.Snapshot) error {
	if err := p.Backend.Apply(ctx, s); err != nil {
		return err
	}
	for len(p.others) > 0 {
		if err := p.others[0](ctx); err != nil {
			return fmt.Errorf("remove what another backend left: %w", err)
		}
		p.others = p.others[1:]
	}
	return nil
}
