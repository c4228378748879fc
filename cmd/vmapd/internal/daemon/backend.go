package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/doctor"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/leftovers"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/userspace"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/sync/events"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// dataplane is a backend, ready to run. It may be one of four.
type dataplane struct {
	reconcile.Backend
	nft       *kernel.Backend
	iptables  *host.IPTables
	ipvs      *host.IPVS
	userspace *userspace.Forwarder

	name  string
	with  string // the variant of the program, if there are several
	why   string // the reason for choosing it
	close func() error
	stats func() [len(model.Families)]host.Stats // of iptables and IPVS
	watch
	sweep    *leftovers.Sweeper // of other backends and proxies
	evidence *leftovers.Evidence
	notOwned time.Time // since when another process owns our tables; zero: none does
}

// openBackend opens the configured backend or, for auto, the first that works on this node. After
// its first successful Apply, it removes the rules of other backends.
func (d *base) openBackend() (*dataplane, error) {
	c := d.config
	switch why := c.BackendReason; c.Backend {
	case config.NFTables:
		return d.openNFT(why)
	case config.IPTables:
		return d.openIPTables(why)
	case config.IPVS:
		return d.openIPVS(why)
	case config.Userspace:
		return d.openUserspace(why)
	case config.Auto:
	}
	p, err := d.openNFT("the kernel has all required features")
	var lacks *kernel.UnsupportedError
	switch {
	case errors.Is(err, kernel.ErrNotPermitted):
		return nil, fmt.Errorf("%w (without it, --backend=userspace serves the addresses that this host has)", err)
	case !errors.As(err, &lacks):
		return p, err
	}
	why := fmt.Sprintf("the kernel lacks %s", lacks.Feature)
	d.log.Warn("nftables is not available", slog.Any("err", err))
	p, ipvsErr := d.openIPVS(why)
	var lacksToo *host.UnsupportedError
	if !errors.As(ipvsErr, &lacksToo) {
		return p, ipvsErr
	}
	d.log.Warn("IPVS is not available", slog.Any("err", ipvsErr))
	why = fmt.Sprintf("%s, and there is no %s", why, lacksToo.Feature)
	p, iptablesErr := d.openIPTables(why)
	if iptablesErr == nil {
		return p, nil
	}
	d.log.Warn("iptables is not available; "+
		"endpoints will see this node's address as the source of all connections", slog.Any("err", iptablesErr))
	return d.openUserspace(why + " and no usable iptables")
}

func (d *base) openNFT(why string) (*dataplane, error) {
	b, err := kernel.Open(kernel.Options{
		Log: d.log, Counters: d.config.ServiceCounters, FastPath: d.config.FastPath.On(),
		Setting: func(name string) (uint32, bool) { return nodesetup.Setting(nodesetup.Options{}, name) },
	})
	if err != nil {
		return nil, err
	}
	backend, watching := watchTables(b, d.log)
	sweep, evidence := d.sweeps(func(f *leftovers.Finder) { f.RunsNFT = true })
	return &dataplane{
		Backend: backend, nft: b, name: string(config.NFTables), why: why,
		close: b.Close, watch: watching, sweep: sweep, evidence: evidence,
	}, nil
}

func (d *base) openIPTables(why string) (*dataplane, error) {
	b, err := host.OpenIPTables(d.config.IPTables(), d.log)
	if err != nil {
		return nil, withImage(err)
	}
	sweep, evidence := d.sweeps(func(f *leftovers.Finder) { f.Rules = b })
	return &dataplane{
		Backend: b, iptables: b, name: string(config.IPTables), with: b.Variant(), why: why, stats: b.Stats,
		close: func() error { return nil }, watch: watchRules(b.Watch), sweep: sweep, evidence: evidence,
	}, nil
}

func (d *base) openIPVS(why string) (*dataplane, error) {
	b, err := host.OpenIPVS(d.config.IPVS(), d.log)
	if err != nil {
		return nil, withImage(err)
	}
	sweep, evidence := d.sweeps(func(f *leftovers.Finder) { f.RunsIPVS = true })
	return &dataplane{
		Backend: b, ipvs: b, name: string(config.IPVS), with: b.Variant(), why: why, stats: b.Stats,
		close: b.Close, watch: watchRules(b.Watch), sweep: sweep, evidence: evidence,
	}, nil
}

// withImage adds to an error about a missing program what has it.
func withImage(err error) error {
	if !host.LacksProgram(err) {
		return err
	}
	return fmt.Errorf("%w (the backends iptables and ipvs run iptables: vmapd's image has it; on a host, "+
		"install it)", err)
}

// sweeps returns what removes the rules of kube-proxy and of other backends than the one that runs, and what notes
// that they come back. Without CAP_NET_ADMIN, nothing can be removed.
func (d *base) sweeps(running func(*leftovers.Finder)) (*leftovers.Sweeper, *leftovers.Evidence) {
	event := func(reason string) func(string) {
		return func(text string) { d.events.Node(events.Warning, reason, text) }
	}
	evidence := &leftovers.Evidence{Log: d.log, Event: event(events.ReasonOtherProxy)}
	if !doctor.HasNetAdmin() {
		return leftovers.NewSweeper(leftovers.Options{Evidence: evidence, Log: d.log}), evidence
	}
	look := leftovers.NewFinder(d.config.IPVS())
	running(look)
	return leftovers.NewSweeper(leftovers.Options{
		Remove: look.Remove, Find: look.All, Evidence: evidence, Log: d.log, Event: event(events.ReasonLeftovers),
	}), evidence
}

// resyncInterval is the time between two comparisons of everything. With userspace, they cost little.
func resyncInterval(c *config.Config, running config.Backend) time.Duration {
	if running == config.Userspace {
		return c.SyncPeriod()
	}
	return reconcile.DefaultResyncInterval
}

// Apply applies s, and then removes leftovers.
func (p *dataplane) Apply(ctx context.Context, s *model.Snapshot) error {
	err := p.Backend.Apply(ctx, s)
	p.noteOwner(err)
	if model.IsProgrammed(err) {
		p.sweep.Applied(ctx)
	}
	return err
}

// noteOwner notes the error of an Apply if another process owns our tables for longer than it takes to hand them over.
func (p *dataplane) noteOwner(err error) {
	switch {
	case !errors.Is(err, kernel.ErrOwned):
		p.evidence.Gone(leftovers.EvidenceOwner)
		p.notOwned = time.Time{}
	case p.notOwned.IsZero():
		p.notOwned = time.Now()
	case time.Since(p.notOwned) > leftovers.HandOver:
		p.evidence.Seen(leftovers.EvidenceOwner, err.Error())
	}
}

// watch notices what other programs do to vmapd's rules. The kernel permits that for rules of iptables, and for tables
// of nftables before Linux 6.9. The zero value notices nothing.
type watch struct {
	foreign <-chan struct{}              // receives then
	changes func() kernel.ForeignChanges // nil with userspace
	tasks   []task
}

// watchTables returns the backend that notices changes of its tables, where they are possible. Without a watch, the
// comparison at each resync remains.
func watchTables(b *kernel.Backend, log *slog.Logger) (reconcile.Backend, watch) {
	none := watch{changes: func() (none kernel.ForeignChanges) { return none }}
	if b.Owned() {
		return b, none
	}
	changed := make(chan struct{}, 1)
	w, err := b.Watch(changed)
	if err != nil {
		log.Error("cannot watch our rules; comparing them at each resync", slog.Any("err", err))
		return b, none
	}
	return w, watch{changed, w.ForeignChanges, []task{noError(func(ctx context.Context) {
		if err := w.Run(ctx); err != nil {
			log.Error("no longer watching our rules; comparing them at each resync", slog.Any("err", err))
		}
	})}}
}

func watchRules(start func(changed chan<- struct{}) *host.Watch) watch {
	changed := make(chan struct{}, 1)
	w := start(changed)
	changes := func() kernel.ForeignChanges { return kernel.ForeignChanges{Changes: w.Changes()} }
	return watch{changed, changes, []task{noError(w.Run)}}
}

// openUserspace opens the backend that needs nothing of the kernel but sockets. Without CAP_NET_ADMIN it
// serves the addresses that the node has.
func (d *base) openUserspace(why string) (*dataplane, error) {
	o, with := userspace.Options{Log: d.log, Failed: d.listenerFailed}, ""
	set, err := userspace.OpenDevice()
	switch {
	case err == nil:
		o.SetAddresses, with = set, "addresses on "+userspace.DeviceName
	case errors.Is(err, unix.EPERM):
		d.log.Warn("without CAP_NET_ADMIN: only addresses that this host has are served")
	default:
		d.log.Warn("no interface for the addresses of Services: only those that this host has are served",
			slog.Any("err", err))
	}
	f := userspace.New(o)
	sweep, evidence := d.sweeps(func(f *leftovers.Finder) { f.RunsUserspace = true })
	return &dataplane{
		Backend: f, userspace: f, name: string(config.Userspace), with: with, why: why,
		close: func() error { return nil }, sweep: sweep, evidence: evidence,
	}, nil
}

// listenerFailed writes an event of a Service about a port that can't be served in full.
func (d *base) listenerFailed(service model.NamespacedName, err error) {
	d.events.Service(service, events.Warning, events.ReasonNodePortFailed, err.Error())
}

// listenerNotes says what the backend in user space does not serve.
func (p *dataplane) listenerNotes() (notes []string) {
	if p.userspace == nil {
		return nil
	}
	for _, f := range model.Families {
		if list := slices.Sorted(maps.Values(p.userspace.Missing(f))); len(list) > 0 {
			notes = append(notes, fmt.Sprintf("%v: %d listeners are missing, such as: %s", f, len(list), list[0]))
		}
	}
	return notes
}
