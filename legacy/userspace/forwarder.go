package userspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vmapd/vmapd/model"
)

// Pauses between two attempts to open a listener. Each snapshot is an occasion, too.
const (
	firstRetry   = 100 * time.Millisecond
	slowestRetry = 2 * time.Second
)

// Options of a Forwarder. The zero value serves everything, on the addresses that the node has.
type Options struct {
	Scope Scope
	// Device gets the addresses of Services; nil: only addresses that the node has are served.
	Device Device
	// Failed is called when a listener of a Service can't be opened, once for each reason.
	// The error has the service port and the address. It must not block.
	Failed func(service model.NamespacedName, err error)
	// Log gets the same, a message when the listener is open at last, and, at level Debug,
	// the connections and datagrams that fail. nil discards it.
	Log *slog.Logger
}

// Device holds addresses that connections to Services may come to. Only Forwarders add to it.
type Device interface {
	Addrs() (map[netip.Addr]struct{}, error)
	Add(netip.Addr) error
	Remove(netip.Addr) error
}

// Forwarder keeps listeners in line with snapshots: one for each address, protocol and port of
// its scope that has endpoints. A port that another process has is retried until it is free; all
// others are served meanwhile.
//
// It follows each snapshot at a cost that depends on the size of the change.
type Forwarder struct {
	env
	scope  Scope
	failed func(model.NamespacedName, error)
	end    context.CancelFunc             // of env.ctx
	latest atomic.Pointer[model.Snapshot] // of Follow
	wake   chan struct{}                  // capacity 1: latest or missing is new

	mu      sync.Mutex
	applied *model.Snapshot // the snapshot of ports
	ports   map[portKey]*port
	entries map[model.VIP]*entry
	missing map[*entry]struct{} // those of entries that have no listener yet
	opens   int                 // listeners
	said    saidCounts
	device  *addresses // nil: none
}

// env is common to all listeners.
type env struct {
	log       *slog.Logger
	open      sockets
	limits    limits
	ctx       context.Context // ends with the Forwarder
	conns     *sync.WaitGroup // TCP connections, which outlive their listeners
	allSlots  chan struct{}   // one for each TCP connection there may be
	buffers   *sync.Pool      // of *[maxDatagram]byte
	pipes     *pipes
	long      chan struct{} // one for each long message of SCTP that is under way
	counts    *counts
	snapshot  *atomic.Pointer[model.Snapshot] // by which is decided
	listening *sync.Map                       // the model.VIPs that have a listener
	byDevice  *atomic.Bool                    // some decision depends on the interface
}

// New returns a Forwarder that listens nowhere before the first snapshot.
func New(o Options) *Forwarder {
	if o.Failed == nil {
		o.Failed = func(model.NamespacedName, error) {}
	}
	limits := limitsFor(o.Scope, openFiles())
	f := &Forwarder{
		env: env{
			log:       cmp.Or(o.Log, slog.New(slog.DiscardHandler)),
			open:      sockets{listenTCP, listenUDP, listenSCTP, connectTCP, connectUDP, connectSCTP},
			limits:    limits,
			conns:     new(sync.WaitGroup),
			allSlots:  make(chan struct{}, limits.allConns),
			buffers:   &sync.Pool{New: func() any { return new([maxDatagram]byte) }},
			pipes:     new(pipes),
			long:      make(chan struct{}, limits.long),
			counts:    new(counts),
			snapshot:  new(atomic.Pointer[model.Snapshot]),
			listening: new(sync.Map),
			byDevice:  new(atomic.Bool),
		},
		scope:   o.Scope,
		failed:  o.Failed,
		wake:    make(chan struct{}, 1),
		applied: new(model.Snapshot),
		ports:   map[portKey]*port{},
		entries: map[model.VIP]*entry{},
		missing: map[*entry]struct{}{},
	}
	f.ctx, f.end = context.WithCancel(context.Background())
	if o.Device != nil {
		f.device = &addresses{device: o.Device, wanted: map[netip.Addr]int{}}
	}
	return f
}

// Follow lets Run follow a snapshot, and does not wait for it.
func (f *Forwarder) Follow(s *model.Snapshot) {
	f.latest.Store(s)
	f.signal()
}

func (f *Forwarder) signal() {
	select {
	case f.wake <- struct{}{}:
	default: // Run has not seen the signal before, and will find what is new
	}
}

// Apply makes the listeners match a snapshot. A port that is taken is no error: Run opens the
// listener when it is free.
func (f *Forwarder) Apply(_ context.Context, s *model.Snapshot) error {
	err := f.follow(s)
	f.signal()
	return err
}

// Resync makes the next Apply read the addresses of the device before it compares.
func (f *Forwarder) Resync() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.device != nil {
		f.device.have = nil
	}
}

// Run retries what failed, and follows the snapshots of Follow, until ctx ends. When it returns, all
// listeners are closed, all connections are reset, and all goroutines have ended. Call it once.
func (f *Forwarder) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, f.end)
	defer stop()
	defer f.close()
	pause := firstRetry
	for {
		var retry <-chan time.Time
		if f.misses() {
			retry = time.After(pause)
		}
		select {
		case <-f.ctx.Done():
			return
		case <-f.wake:
			pause = firstRetry
		case <-retry:
			pause = min(2*pause, slowestRetry)
		}
		if s := f.latest.Swap(nil); s != nil {
			_ = f.follow(s) // there is no device
			continue
		}
		if f.retry() {
			pause = firstRetry
		}
	}
}

func (f *Forwarder) misses() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.missing) > 0
}

// retry tries to open missing listeners. It reports whether it reported a failure.
func (f *Forwarder) retry() (news bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.openMissing()
}

// follow closes the listeners that a snapshot does not want and opens the missing ones. The error is
// about the device.
func (f *Forwarder) follow(s *model.Snapshot) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.snapshot.Store(s)
	f.byDevice.Store(slices.ContainsFunc(model.Families[:], func(family model.Family) bool {
		fs := s.Family(family)
		return fs.Settings != nil && fs.Pods.Interface != ""
	}))
	for _, family := range model.Families {
		old, now := f.applied.Family(family), s.Family(family)
		if f.device != nil {
			f.device.clusterIPs(old, now)
		}
		if old.Settings == now.Settings {
			for c := range now.ServicePortChanges(old) {
				f.change(now, c)
			}
			continue
		}
		// The places depend on the settings.
		for c := range new(model.FamilySnapshot).ServicePortChanges(old) {
			if _, ok := now.ServicePort(c.Old.Name); !ok {
				f.change(now, c)
			}
		}
		for sp := range now.ServicePorts() {
			was, _ := old.ServicePort(sp.Name)
			f.change(now, model.Change[*model.ServicePort]{Old: was, New: sp})
		}
	}
	f.applied = s
	var errs []error
	if f.device != nil {
		errs = append(errs, f.device.add())
	}
	f.openMissing()
	if f.device != nil {
		errs = append(errs, f.device.remove())
	}
	return errors.Join(errs...)
}

// change applies a change of a service port but for opening listeners: another one may have to free
// the address first.
func (f *Forwarder) change(s *model.FamilySnapshot, c model.Change[*model.ServicePort]) {
	key := portKey{s.Family, cmp.Or(c.New, c.Old).Name}
	p := f.ports[key]
	places, addrs := Places(s, c.New, f.scope), []netip.Addr(nil)
	if f.device != nil {
		addrs = serviceAddrs(s, c.New)
	}
	if p == nil {
		if len(places)+len(addrs) == 0 {
			return
		}
		p = &port{key: key, chooser: chooser{inAll: &f.counts.remembered}}
		f.ports[key] = p
	}
	for _, at := range p.places {
		if !slices.Contains(places, at) {
			f.withdraw(p, at)
		}
	}
	for _, at := range places {
		f.claim(p, at)
	}
	if f.device != nil {
		f.device.replace(p.addrs, addrs)
	}
	p.places, p.addrs = places, addrs
	p.changed(c.Old, c.New)
	if c.New == nil {
		p.chooser.close()
		delete(f.ports, key)
	}
}

// claim lets a service port be served at a place. It may be served there already.
func (f *Forwarder) claim(p *port, at Place) {
	e := f.entries[at.VIP]
	if e == nil {
		e = &entry{vip: at.VIP}
		f.entries[at.VIP] = e
		f.missing[e] = struct{}{}
	}
	if o := e.owners[rank(at.Kind)]; o == nil || o.port != p || o.kind != at.Kind {
		e.owners[rank(at.Kind)] = &owner{p, at.Kind}
	}
	e.choose()
	if e.listener != nil {
		e.listener.changed()
	}
}

// withdraw ends claim. Another service port may have the place by now.
func (f *Forwarder) withdraw(p *port, at Place) {
	e := f.entries[at.VIP]
	if e == nil || e.owners[rank(at.Kind)] == nil || e.owners[rank(at.Kind)].port != p {
		return
	}
	e.collectDropped()
	e.owners[rank(at.Kind)] = nil
	if e.choose() {
		if e.listener != nil {
			e.listener.changed()
		}
		return
	}
	f.closeEntry(e)
}

// closeEntry closes a listener, if it is open, and forgets the place.
func (f *Forwarder) closeEntry(e *entry) {
	if e.listener != nil {
		e.collectDropped()
		f.listening.Delete(e.vip)
		e.listener.close()
		e.listener = nil
		f.opens--
	}
	delete(f.missing, e)
	delete(f.entries, e.vip)
}

// close closes all listeners, and waits for the connections, which the end of ctx resets.
func (f *Forwarder) close() {
	f.end()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.entries {
		f.closeEntry(e)
	}
	f.conns.Wait()
	f.pipes.close()
}

// openMissing tries to open the listeners that are missing. It reports whether it reported a failure:
// the first of a listener, or one for another reason.
func (f *Forwarder) openMissing() (news bool) {
	if len(f.missing) == 0 {
		return false
	}
	for e := range f.missing {
		news = f.openListener(e) || news
	}
	f.sayCounts()
	return news
}

func (f *Forwarder) openListener(e *entry) (news bool) {
	l, err := f.newListener(e)
	o := e.owner.Load()
	e.absent = errors.Is(err, syscall.EADDRNOTAVAIL)
	if err == nil {
		e.listener = l
		f.opens++
		f.listening.Store(e.vip, struct{}{})
		delete(f.missing, e)
		if e.said != "" {
			f.log.LogAttrs(f.ctx, slog.LevelInfo, "listening, which had failed",
				slog.Any("service_port", o.key.name), slog.Any("address", e.vip))
		}
		e.said = ""
		return false
	}
	if f.ctx.Err() != nil {
		return false
	}
	f.counts.failures[e.family()].Add(1)
	if e.said == err.Error() {
		return false
	}
	e.said = err.Error()
	if e.absent || errors.As(err, new(placesError)) {
		return false // sayCounts says how many there are
	}
	err = fmt.Errorf("listen on %v for service port %v: %w", e.vip, o.key.name, err)
	f.log.LogAttrs(f.ctx, slog.LevelWarn, "cannot listen; retrying", slog.Any("err", err))
	f.failed(o.key.name.NamespacedName, err)
	return true
}

func (f *Forwarder) newListener(e *entry) (listener, error) {
	switch {
	case f.opens >= f.limits.places:
		return nil, placesError{f.limits.places}
	case e.vip.Protocol == model.TCP, e.vip.Protocol == model.SCTP:
		return asListener(newConnListener(&f.env, e))
	case e.vip.Protocol == model.UDP:
		return asListener(newUDPListener(&f.env, e))
	}
	return nil, syscall.EPROTONOSUPPORT
}

// asListener returns no interface that holds a nil.
func asListener[L listener](l L, err error) (listener, error) {
	if err != nil {
		return nil, err
	}
	return l, nil
}
