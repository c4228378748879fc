package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// dataplane is a backend, ready to run.
type dataplane struct {
	reconcile.Backend
	name      string
	with      string // the variant of the program, if there are several
	why       string // the reason for choosing it
	close     func() error
	nft       *kernel.Backend                        // nil unless the backend is nftables
	committed func(kernel.Commit)                    // called with its batches; set before the first Apply
	stats     func() [len(model.Families)]host.Stats // of the other backends
	// others remove the leftovers of other backends and of kube-proxy from the node. A
	// function that has succeeded is not called again.
	others []func() error
	again  func() // asks for another Apply, though nothing changed
	log    *slog.Logger
	tried  time.Time // when others were called last
	said   string    // the error of others that was logged; "" if there is none
}

// leftoversRetry is the time between two attempts to remove the leftovers of other backends:
// each attempt may run programs.
const leftoversRetry = 30 * time.Second

// openBackend opens the configured backend or, for auto, the first that works on this node. It
// removes the rules of other backends after its first successful Apply.
func (d *daemon) openBackend(ctx context.Context) (*dataplane, error) {
	c := d.current.Load()
	switch why := c.BackendReason; c.Backend {
	case config.NFTables:
		return d.openNFT(why)
	case config.IPTables:
		return d.openIPTables(why)
	case config.IPVS:
		return d.openIPVS(why)
	case config.Auto:
	}
	p, err := d.openNFT("the kernel has all required features")
	var lacks *kernel.UnsupportedError
	if !errors.As(err, &lacks) {
		return p, err
	}
	why := fmt.Sprintf("the kernel lacks %s", lacks.Feature)
	d.log.LogAttrs(ctx, slog.LevelWarn, "nftables is not available", slog.Any("err", err))
	p, ipvsErr := d.openIPVS(why)
	var lacksToo *host.UnsupportedError
	if !errors.As(ipvsErr, &lacksToo) {
		return p, ipvsErr
	}
	d.log.LogAttrs(ctx, slog.LevelWarn, "IPVS is not available", slog.Any("err", ipvsErr))
	p, iptablesErr := d.openIPTables(fmt.Sprintf("%s, and there is no %s", why, lacksToo.Feature))
	if iptablesErr != nil {
		return nil, errors.Join(err, ipvsErr, iptablesErr)
	}
	return p, nil
}

func (d *daemon) openNFT(why string) (*dataplane, error) {
	p := &dataplane{name: string(config.NFTables), why: why, log: d.log}
	b, err := kernel.Open(kernel.Options{
		Log: d.log, Counters: d.current.Load().ServiceCounters,
		Observe: func(c kernel.Commit) { p.committed(c) },
	})
	if err != nil {
		return nil, err
	}
	p.Backend, p.nft, p.close = b, b, b.Close
	p.others = leftovers(nil, d.removeIPVS, kubeProxyTable)
	return p, nil
}

func (d *daemon) openIPTables(why string) (*dataplane, error) {
	b, err := host.OpenIPTables(d.current.Load().IPTables(), d.log)
	if err != nil {
		return nil, err
	}
	return &dataplane{
		Backend: b, name: string(config.IPTables), with: b.Variant(), why: why, log: d.log, close: func() error { return nil },
		stats: b.Stats, others: leftovers(b, d.removeIPVS, nft.TableName, kubeProxyTable),
	}, nil
}

func (d *daemon) openIPVS(why string) (*dataplane, error) {
	b, err := host.OpenIPVS(d.current.Load().IPVS(), d.log)
	if err != nil {
		return nil, err
	}
	return &dataplane{
		Backend: b, name: string(config.IPVS), with: b.Variant(), why: why, log: d.log, close: b.Close, stats: b.Stats,
		others: leftovers(nil, host.RemoveKubeProxyIPVS, nft.TableName, kubeProxyTable),
	}, nil
}

func (d *daemon) removeIPVS() error {
	return remover().RemoveIPVS(d.current.Load().IPVS())
}

// leftovers returns the functions that remove the rules of other backends and of kube-proxy:
// those of iptables except own's, those of IPVS, and nftables tables.
func leftovers(own *host.IPTables, removeIPVS func() error, tables ...string) []func() error {
	return []func() error{
		func() error { return kernel.RemoveTables(tables...) },
		func() error { return remover().RemoveRules(own) },
		removeIPVS,
	}
}

// resyncInterval is the time between two full comparisons of a backend with the node. Foreign
// changes to nftables are noticed as they happen, or the kernel prevents them.
func resyncInterval(c *config.Config, running config.Backend) time.Duration {
	if running == config.NFTables {
		return reconcile.DefaultResyncInterval
	}
	return c.SyncPeriod(running)
}

// Apply applies s and, the first time that this succeeds, removes the rules that other backends
// left: not before, so that connections always find rules. Leftovers that can't be removed
// are a warning and not an error, which would be one of both families.
func (p *dataplane) Apply(ctx context.Context, s *model.Snapshot) error {
	if err := p.Backend.Apply(ctx, s); err != nil {
		return err
	}
	if len(p.others) > 0 && time.Since(p.tried) >= leftoversRetry {
		p.removeLeftovers(ctx)
	}
	return nil
}

func (p *dataplane) removeLeftovers(ctx context.Context) {
	p.tried = time.Now()
	var errs []error
	p.others = slices.DeleteFunc(p.others, func(remove func() error) bool {
		err := remove()
		errs = append(errs, err)
		return err == nil
	})
	err := errors.Join(errs...)
	if err == nil || ctx.Err() != nil {
		return
	}
	if p.said != err.Error() {
		p.said = err.Error()
		p.log.LogAttrs(ctx, slog.LevelWarn, "cannot remove the rules of another backend; retrying",
			slog.Any("err", err), slog.Duration("retry_in", leftoversRetry))
	}
	time.AfterFunc(leftoversRetry, p.again)
}
