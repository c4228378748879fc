package localhost

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// Pauses between two attempts to open a port. Each round is an occasion, too.
const (
	firstRetry   = 100 * time.Millisecond
	slowestRetry = 2 * time.Second
)

// Options of a Forwarder. The zero value works.
type Options struct {
	// Failed is called when a Service's node port can't be opened, once for each reason.
	// The error has the service port and the address. It must not block.
	Failed func(service model.NamespacedName, err error)
	// Log gets the same, a message when the port is open at last, and, at level Debug,
	// the connections and datagrams that fail. nil discards it.
	Log *slog.Logger
}

// Forwarder keeps listeners on loopback in line with snapshots: one for each TCP and UDP
// node port of the families with Settings.Localhost that has endpoints. A port that
// another process has is retried until it is free; all others are served meanwhile.
//
// It is an observer of a [reconcile.Loop] and follows the snapshot of each round, at a
// cost that depends on the size of the change. It also follows failed rounds: its
// listeners need no rules, so a family that can't be programmed is no reason to send
// clients to removed endpoints or to refuse those of a new Service.
type Forwarder struct {
	env
	failed func(model.NamespacedName, error)
	latest atomic.Pointer[model.Snapshot] // of the rounds
	wake   chan struct{}                  // capacity 1: latest is new

	mu      sync.Mutex
	applied *model.Snapshot // the snapshot of ports
	ports   map[portKey]*port
	missing map[portKey]*port // those of ports that have no listener yet
}

// env is common to all listeners.
type env struct {
	log     *slog.Logger
	open    sockets
	limits  limits
	ctx     context.Context // Run's
	conns   *sync.WaitGroup // TCP connections, which outlive their listeners
	buffers *sync.Pool      // of *[maxDatagram]byte
	counts  *counts
}

// portKey identifies a port.
type portKey struct {
	family model.Family
	name   model.ServicePortName
}

// port is a service port that has a listener, or should have one.
type port struct {
	at       netip.AddrPort
	chooser  *chooser
	listener listener // nil: it is missing
	said     string   // the error that was reported; "": none
}

// listener accepts connections until it is closed.
type listener interface {
	// endpointsChanged is called when the chooser has other endpoints.
	endpointsChanged()
	// close frees the address and waits for the goroutines. TCP connections stay.
	close()
}

// New returns a Forwarder that listens nowhere before Run.
func New(o Options) *Forwarder {
	if o.Failed == nil {
		o.Failed = func(model.NamespacedName, error) {}
	}
	return &Forwarder{
		env: env{
			log:     cmp.Or(o.Log, slog.New(slog.DiscardHandler)),
			open:    sockets{listenTCP, listenUDP, connectTCP, connectUDP},
			limits:  defaultLimits(),
			conns:   new(sync.WaitGroup),
			buffers: &sync.Pool{New: func() any { return new([maxDatagram]byte) }},
			counts:  new(counts),
		},
		failed:  o.Failed,
		wake:    make(chan struct{}, 1),
		applied: new(model.Snapshot),
		ports:   map[portKey]*port{},
		missing: map[portKey]*port{},
	}
}

// Queued implements [reconcile.Observer].
func (f *Forwarder) Queued(time.Time) {}

// Done implements [reconcile.Observer].
func (f *Forwarder) Done(r reconcile.Round) {
	f.latest.Store(r.Snapshot)
	reconcile.Signal(f.wake)
}

// Run listens until ctx ends. When it returns, all listeners are closed, all connections
// are reset, and all goroutines have ended. Call it once.
func (f *Forwarder) Run(ctx context.Context) {
	f.ctx = ctx
	defer f.close()
	pause := firstRetry
	for {
		var retry <-chan time.Time
		if len(f.missing) > 0 { // only Run writes it
			retry = time.After(pause)
		}
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		case <-retry:
			pause = min(2*pause, slowestRetry)
		}
		if f.follow(f.latest.Load()) {
			pause = firstRetry
		}
	}
}

// follow closes the listeners that a snapshot does not want and opens the missing ones. It
// reports whether it reported a failure.
func (f *Forwarder) follow(s *model.Snapshot) (news bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, family := range model.Families {
		old, now := served(f.applied, family), served(s, family)
		for c := range now.ServicePortChanges(old) {
			f.change(family, c)
		}
	}
	f.applied = s
	for key, p := range f.missing {
		news = f.openListener(key, p) || news
	}
	return news
}

// served returns a family of a snapshot; an empty one without Settings.Localhost.
func served(s *model.Snapshot, f model.Family) *model.FamilySnapshot {
	fs := s.Family(f)
	if fs.Settings == nil || !fs.Localhost {
		return &model.FamilySnapshot{Family: f}
	}
	return fs
}

// change applies a change but for opening the listener: another port may have to free the
// address first.
func (f *Forwarder) change(family model.Family, c model.Change[*model.ServicePort]) {
	key := portKey{family, cmp.Or(c.New, c.Old).Name}
	w := wanted(c.New)
	p := f.ports[key]
	if p == nil {
		if len(w.endpoints) == 0 {
			return
		}
		p = &port{chooser: new(chooser)}
		f.ports[key] = p
	}
	p.chooser.set(w)
	if p.at != w.at {
		p.at, p.said = w.at, ""
		f.closeListener(key, p)
		return
	}
	if p.listener != nil {
		p.listener.endpointsChanged()
	}
}

// closeListener closes the listener of a port, if it has one. A port without an address is
// forgotten.
func (f *Forwarder) closeListener(key portKey, p *port) {
	if p.listener != nil {
		p.listener.close()
		p.listener = nil
	}
	if p.at.IsValid() {
		f.missing[key] = p
		return
	}
	delete(f.missing, key)
	delete(f.ports, key)
}

// openListener opens the listener of a port. It reports whether it reported a failure: the
// first, or one for another reason.
func (f *Forwarder) openListener(key portKey, p *port) (news bool) {
	var err error
	if key.name.Protocol == model.UDP {
		p.listener, err = newUDPListener(&f.env, p.at, p.chooser)
	} else {
		p.listener, err = newTCPListener(&f.env, p.at, p.chooser)
	}
	if err == nil {
		delete(f.missing, key)
		if p.said != "" {
			f.log.LogAttrs(f.ctx, slog.LevelInfo, "listening on a node port on loopback, which had failed",
				slog.Any("service_port", key.name), slog.Any("address", p.at))
		}
		p.said = ""
		return false
	}
	p.listener = nil // not an interface that holds a nil
	if f.ctx.Err() != nil {
		return false
	}
	f.counts.failures[key.family].Add(1)
	if p.said == err.Error() {
		return false
	}
	p.said = err.Error()
	err = fmt.Errorf("listen on %v/%v for service port %v: %w", p.at, key.name.Protocol, key.name, err)
	f.log.LogAttrs(f.ctx, slog.LevelWarn, "cannot listen on a node port on loopback; retrying", slog.Any("err", err))
	f.failed(key.name.NamespacedName, err)
	return true
}

// close closes all listeners, and waits for the connections, which the end of ctx resets.
func (f *Forwarder) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, p := range f.ports {
		p.at = netip.AddrPort{}
		f.closeListener(key, p)
	}
	f.conns.Wait()
}
