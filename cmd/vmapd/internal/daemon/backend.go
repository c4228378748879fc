package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/userspace"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/sync/events"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// backend programs the kernel. Compare returns how the kernel's rules of a family differ from a snapshot; with a
// service port, those differences alone that its connections meet.
type backend interface {
	reconcile.Backend
	Compare(ctx context.Context, f model.Family, s *model.Snapshot, of *model.ServicePort) ([]string, error)
}

// dataplane is a backend, ready to run. It may be one of four. Its sockets end with the process.
type dataplane struct {
	backend
	nft       *kernel.Backend
	iptables  *host.IPTables
	ipvs      *host.IPVS
	userspace *userspace.Forwarder

	name  string
	with  string                                 // the variant of the program, if there are several
	why   string                                 // the reason for choosing it
	stats func() [len(model.Families)]host.Stats // of iptables and IPVS
	// foreign receives when another program has changed vmapd's rules: the kernel permits that for rules of iptables, and
	// for tables of nftables before Linux 6.9. nil: never. watch sends there until its context ends.
	foreign chan struct{}
	watch   func(context.Context)
}

// openBackend opens the configured backend or, for auto, the first that works on this node.
func (d *Daemon) openBackend() (*dataplane, error) {
	open := map[config.Backend]func(why string) (*dataplane, error){
		config.NFTables: d.openNFT, config.IPVS: d.openIPVS, config.IPTables: d.openIPTables,
		config.Userspace: d.openUserspace,
	}
	if c := d.Config; c.Backend != config.Auto {
		return open[c.Backend](c.BackendReason)
	}
	why := "the kernel has all required features"
	for _, b := range []config.Backend{config.NFTables, config.IPVS, config.IPTables} {
		p, err := open[b](why)
		var lacks *kernel.UnsupportedError
		var lacksToo *host.UnsupportedError
		switch {
		case errors.Is(err, kernel.ErrNotPermitted):
			return nil, fmt.Errorf("%w (without it, --backend=userspace serves the addresses that this host has)", err)
		case errors.As(err, &lacks):
			why = "the kernel lacks " + lacks.Feature
		case errors.As(err, &lacksToo):
			why += ", and there is no " + lacksToo.Feature
		case err == nil || b != config.IPTables:
			return p, err
		default:
			why += ", and no usable iptables"
		}
		d.Log.Warn("a backend is not available", slog.String("backend", string(b)), slog.Any("err", err))
	}
	d.Log.Warn("endpoints will see this node's address as the source of all connections")
	return d.openUserspace(why)
}

func (d *Daemon) openNFT(why string) (*dataplane, error) {
	b, err := kernel.Open(kernel.Options{
		Log: d.Log, Counters: d.Config.Own.ServiceCounters, FastPath: d.Config.FastPath.On(),
		Setting: nodesetup.Setting,
	})
	if err != nil {
		return nil, err
	}
	p := &dataplane{backend: b, nft: b, name: string(config.NFTables), why: why}
	p.watchTables(b, d.Log)
	d.run(func(context.Context) { b.ReadAhead() })
	return p, nil
}

func (d *Daemon) openIPTables(why string) (*dataplane, error) {
	b, err := host.OpenIPTables(d.Config.IPTables(), d.Log)
	if err != nil {
		return nil, err
	}
	foreign := make(chan struct{}, 1)
	return &dataplane{
		backend: b, iptables: b, name: string(config.IPTables), with: b.Variant(), why: why, stats: b.Stats,
		foreign: foreign, watch: b.Watch(foreign).Run,
	}, nil
}

func (d *Daemon) openIPVS(why string) (*dataplane, error) {
	b, err := host.OpenIPVS(d.Config.IPVS(), d.Log)
	if err != nil {
		return nil, err
	}
	foreign := make(chan struct{}, 1)
	return &dataplane{
		backend: b, ipvs: b, name: string(config.IPVS), with: b.Variant(), why: why, stats: b.Stats,
		foreign: foreign, watch: b.Watch(foreign).Run,
	}, nil
}

// watchTables notices changes of tables, where they are possible. Without a watch, the comparison at each resync
// remains.
func (p *dataplane) watchTables(b *kernel.Backend, log *slog.Logger) {
	if b.Owned() {
		return
	}
	p.foreign = make(chan struct{}, 1)
	w, err := b.Watch(p.foreign)
	if err != nil {
		log.Error("cannot watch our rules; comparing them at each resync", slog.Any("err", err))
		return
	}
	p.watch = func(ctx context.Context) {
		if err := w.Run(ctx); err != nil {
			log.Error("no longer watching our rules; comparing them at each resync", slog.Any("err", err))
		}
	}
}

// openUserspace opens the backend that needs nothing of the kernel but sockets. Without CAP_NET_ADMIN it
// serves the addresses that the node has.
func (d *Daemon) openUserspace(why string) (*dataplane, error) {
	o, with := userspace.Options{Log: d.Log, Failed: d.listenerFailed}, ""
	set, err := userspace.OpenDevice()
	switch {
	case err == nil:
		o.SetAddresses, with = set, "addresses on "+userspace.DeviceName
	case errors.Is(err, unix.EPERM):
		d.Log.Warn("without CAP_NET_ADMIN: only addresses that this host has are served")
	default:
		d.Log.Warn("no interface for the addresses of Services: only those that this host has are served",
			slog.Any("err", err))
	}
	f := userspace.New(o)
	return &dataplane{
		backend: f, userspace: f, name: string(config.Userspace), with: with, why: why,
	}, nil
}

func (d *Daemon) listenerFailed(service model.NamespacedName, err error) {
	d.events.Service(service, events.ReasonNodePortFailed, err.Error())
}

func (p *dataplane) listenerNotes() (notes []string) {
	if p.userspace == nil {
		return nil
	}
	for _, f := range model.Families {
		if list, _ := p.Compare(context.Background(), f, nil, nil); len(list) > 0 {
			notes = append(notes, fmt.Sprintf("%v: %d listeners are missing, such as: %s", f, len(list), list[0]))
		}
	}
	return notes
}
