package localhost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"

	"github.com/vmapd/vmapd/model"
)

// ErrClosed is what Apply returns after Close.
var ErrClosed = errors.New("the forwarder on loopback is closed")

// maxErrors is how many errors of one Apply are told in full.
const maxErrors = 10

// Options of a Forwarder. The zero value works.
type Options struct {
	// Log gets what happens to single clients, at level Debug. nil discards it.
	Log *slog.Logger
	// NetNS calls a function once, on a thread that is in the network namespace where
	// to listen and from where to connect, and returns its error. nil means the
	// namespace of the process. Connecting may take seconds; any number of goroutines
	// call.
	NetNS func(func() error) error
}

// Forwarder keeps listeners on loopback in line with snapshots. Any number of goroutines
// may use it.
type Forwarder struct {
	env
	cancel context.CancelFunc // of env.ctx

	mu      sync.Mutex
	applied *model.Snapshot // what ports are about
	ports   map[portKey]*port
	missing map[portKey]struct{} // those of ports that have no listener yet
	closed  bool
}

// env is what all listeners need.
type env struct {
	log     *slog.Logger
	open    sockets
	limits  limits
	ctx     context.Context // ends with Close
	conns   *sync.WaitGroup // TCP connections, which outlive their listeners
	buffers *sync.Pool      // of *[maxDatagram]byte
	counts  *counts
}

// portKey identifies a port.
type portKey struct {
	family model.Family
	name   model.ServicePortName
}

// port is a service port that has a listener, or shall have one.
type port struct {
	at       netip.AddrPort
	chooser  *chooser
	listener listener // nil if it is missing
}

// listener accepts connections until it is closed.
type listener interface {
	// endpointsChanged is called after those of the chooser did.
	endpointsChanged()
	// close frees the address and returns when nobody accepts any more. TCP
	// connections stay.
	close()
}

// New returns a Forwarder that listens nowhere yet. Whoever makes one has to Close it.
func New(o Options) *Forwarder {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.NetNS == nil {
		o.NetNS = func(fn func() error) error { return fn() }
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Forwarder{
		env: env{
			log:     o.Log,
			open:    socketsIn(o.NetNS),
			limits:  defaultLimits(),
			ctx:     ctx,
			conns:   new(sync.WaitGroup),
			buffers: &sync.Pool{New: func() any { return new([maxDatagram]byte) }},
			counts:  new(counts),
		},
		cancel:  cancel,
		applied: new(model.Snapshot),
		ports:   map[portKey]*port{},
		missing: map[portKey]struct{}{},
	}
}

// Apply opens a listener for each TCP and UDP node port of the families with
// Settings.Localhost that has endpoints, and closes those of before that are none of
// these. The cost follows what differs from the snapshot applied last.
//
// A listener that can't be opened, because somebody else has the port or ctx has ended,
// does not keep the others from being opened, and the next Apply tries it again, whatever
// has changed. The error joins one for each, the first ten in full, with the service
// port, address and port. After Close it is ErrClosed.
func (f *Forwarder) Apply(ctx context.Context, s *model.Snapshot) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return ErrClosed
	}
	for _, family := range model.Families {
		old, now := served(f.applied, family), served(s, family)
		for c := range now.ServicePortChanges(old) {
			f.change(family, c)
		}
	}
	f.applied = s
	return f.openMissing(ctx)
}

// served returns what a snapshot has for a family, nothing if loopback is switched off.
func served(s *model.Snapshot, f model.Family) *model.FamilySnapshot {
	fs := s.Family(f)
	if fs.Settings == nil || !fs.Localhost {
		return &model.FamilySnapshot{Family: f}
	}
	return fs
}

// change does everything about a changed service port but open its listener: another
// one may have to free the address first.
func (f *Forwarder) change(family model.Family, c model.Change[*model.ServicePort]) {
	key := portKey{family: family}
	if c.New != nil {
		key.name = c.New.Name
	} else {
		key.name = c.Old.Name
	}
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
		p.at = w.at
		f.closeListener(key, p)
		return
	}
	if p.listener != nil {
		p.listener.endpointsChanged()
	}
}

// closeListener closes the listener that a port may have. A port that shall not listen
// at all is forgotten.
func (f *Forwarder) closeListener(key portKey, p *port) {
	if p.listener != nil {
		p.listener.close()
		p.listener = nil
	}
	if p.at.IsValid() {
		f.missing[key] = struct{}{}
		return
	}
	delete(f.missing, key)
	delete(f.ports, key)
}

func (f *Forwarder) openMissing(ctx context.Context) error {
	var errs []error
	failed := 0
	for key := range f.missing {
		err := f.openListener(ctx, key)
		if err == nil {
			delete(f.missing, key)
			continue
		}
		if failed++; failed <= maxErrors {
			errs = append(errs, err)
		}
	}
	if failed > maxErrors {
		errs = append(errs, fmt.Errorf("and %d more", failed-maxErrors))
	}
	return errors.Join(errs...)
}

func (f *Forwarder) openListener(ctx context.Context, key portKey) error {
	p := f.ports[key]
	err := ctx.Err()
	if err == nil {
		if key.name.Protocol == model.UDP {
			p.listener, err = newUDPListener(ctx, &f.env, p.at, p.chooser)
		} else {
			p.listener, err = newTCPListener(ctx, &f.env, p.at, p.chooser)
		}
	}
	if err != nil {
		f.counts.failures[key.family].Add(1)
		p.listener = nil // not an interface that holds a nil
		return fmt.Errorf("listen on %v/%v for service port %v: %w", p.at, key.name.Protocol, key.name, err)
	}
	return nil
}

// Close closes all listeners, resets all connections, and returns when everything has
// ended. The error is always nil.
func (f *Forwarder) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.cancel()
	for key, p := range f.ports {
		p.at = netip.AddrPort{}
		f.closeListener(key, p)
	}
	f.conns.Wait()
	return nil
}
