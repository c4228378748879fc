package userspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vmapd/vmapd/model"
)

// retry is the time between two attempts to open a listener. Each snapshot is an occasion, too.
const retry = time.Second

// Options of a Forwarder. The zero value serves everything, on the addresses that the node has.
type Options struct {
	Scope Scope
	// Device gets the addresses of Services; nil: only addresses that the node has are served.
	Device Device
	// Failed is called when a service port can't be served in full, once for each reason. It must not block.
	Failed func(service model.NamespacedName, err error)
	Log    *slog.Logger // gets the same, and at level Debug connections and datagrams that fail; nil discards it
}

// Device holds addresses that connections to Services may come to. Only Forwarders add to it.
type Device interface {
	Addrs() (map[netip.Addr]struct{}, error)
	Add(netip.Addr) error
	Remove(netip.Addr) error
}

// Forwarder keeps listeners in line with snapshots: one for each place of its scope. A port that another
// process has is retried until it is free; all others are served meanwhile.
type Forwarder struct {
	Options
	sockets  sockets
	limits   limits
	ctx      context.Context // ends with the Forwarder
	end      context.CancelFunc
	latest   atomic.Pointer[model.Snapshot] // of Follow
	wake     chan struct{}                  // capacity 1: latest is new
	now      atomic.Pointer[wanted]         // by which is decided
	slots    chan struct{}                  // one for each TCP connection there may be
	udp      atomic.Int64                   // clients of UDP
	tasks    sync.WaitGroup                 // TCP connections, which outlive their listeners
	buffers  sync.Pool                      // of *[maxDatagram]byte
	accepted [len(model.Families)]atomic.Uint64
	flows    flows

	mu        sync.Mutex
	listeners map[model.VIP]*listener
	failures  [len(model.Families)]uint64
	absent    sync.Once // to say that the node does not have addresses
}

// listener is a place where connections are accepted, or should be.
type listener struct {
	close func() // frees the address and waits for the goroutines, but not for TCP connections; nil: it is missing
	err   error  // of the last attempt to open it
}

// sockets opens sockets. Tests have their own, as their endpoints are servers on loopback.
type sockets interface {
	Listen(ctx context.Context, network, address string) (net.Listener, error)
	ListenPacket(ctx context.Context, network, address string) (net.PacketConn, error)
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// New returns a Forwarder that listens nowhere before the first snapshot.
func New(o Options) *Forwarder {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	limits, listen := limitsFor(o.Scope, openFiles()), &net.ListenConfig{}
	listen.SetMultipathTCP(false) // there is one path
	f := &Forwarder{
		Options: o,
		sockets: struct {
			*net.ListenConfig
			*net.Dialer
		}{listen, &net.Dialer{}},
		limits:    limits,
		wake:      make(chan struct{}, 1),
		slots:     make(chan struct{}, limits.allConns),
		buffers:   sync.Pool{New: func() any { return new([maxDatagram]byte) }},
		flows:     flows{all: map[*flow]struct{}{}, visitors: map[visitor]visit{}},
		listeners: map[model.VIP]*listener{},
	}
	f.now.Store(want(new(model.Snapshot), o.Scope))
	f.ctx, f.end = context.WithCancel(context.Background())
	return f
}

// Follow lets Run follow a snapshot, and does not wait for it.
func (f *Forwarder) Follow(s *model.Snapshot) {
	f.latest.Store(s)
	select {
	case f.wake <- struct{}{}:
	default: // Run has not seen the signal before, and will find what is new
	}
}

// Run retries what failed, and follows the snapshots of Follow, until ctx ends. When it returns, all
// listeners are closed, all connections are reset, and all goroutines have ended. Call it once.
func (f *Forwarder) Run(ctx context.Context) {
	tick := time.NewTicker(retry)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			f.close()
			return
		case <-tick.C:
			f.mu.Lock()
			f.openMissing()
			f.mu.Unlock()
		case <-f.wake:
			_ = f.Apply(ctx, f.latest.Load()) // an error is about the device, and there is none
		}
	}
}

func (f *Forwarder) close() {
	f.end()
	f.mu.Lock()
	f.listen(want(new(model.Snapshot), f.Scope))
	f.mu.Unlock()
	f.flows.follow(f.now.Load(), true)
	f.tasks.Wait()
}

// Resync does nothing: each Apply reads what the device has.
func (f *Forwarder) Resync() {}

// Apply makes the device and the listeners match a snapshot. A port that is taken is no error: Run opens the
// listener when it is free.
func (f *Forwarder) Apply(_ context.Context, s *model.Snapshot) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sayUnserved(f.now.Load().Snapshot, s)
	w := want(s, f.Scope)
	f.now.Store(w)
	if f.Device == nil {
		f.listen(w)
		return nil
	}
	have, err := f.Device.Addrs()
	if err != nil {
		return fmt.Errorf("read the addresses of the device: %w", err)
	}
	err = change("add", w.addrs, have, f.Device.Add)
	f.listen(w)
	return errors.Join(err, change("remove", have, w.addrs, f.Device.Remove))
}

// change changes the addresses that one set has and the other has not. One that fails does not keep the others from it.
func change(what string, of, not map[netip.Addr]struct{}, call func(netip.Addr) error) error {
	var errs []error
	for a := range of {
		if _, ok := not[a]; ok {
			continue
		}
		if err := call(a); err != nil && len(errs) < 10 {
			err = fmt.Errorf("%s the address %v: %w", what, a, err)
			errs = append(errs, &model.FamilyError{Family: model.FamilyOf(a), Err: err})
		}
	}
	return errors.Join(errs...)
}

// listen closes the listeners that nobody wants, and opens the missing ones.
func (f *Forwarder) listen(w *wanted) {
	for vip, l := range f.listeners {
		if _, ok := w.places[vip]; !ok {
			if l.close != nil {
				l.close()
			}
			delete(f.listeners, vip)
		}
	}
	for vip := range w.places {
		if f.listeners[vip] == nil {
			f.listeners[vip] = &listener{}
		}
	}
	f.openMissing()
	f.flows.follow(w, false)
}

// openMissing tries to open the listeners that are missing.
func (f *Forwarder) openMissing() {
	open := 0
	for _, l := range f.listeners {
		if l.close != nil {
			open++
		}
	}
	for vip, l := range f.listeners {
		if l.close != nil {
			continue
		}
		was := l.err
		if l.err = errTooMany; open < f.limits.listeners {
			l.close, l.err = f.open(vip)
		}
		if l.err != nil {
			f.failures[model.FamilyOf(vip.Addr)]++
			f.sayFailed(vip, was, l.err)
			continue
		}
		if open++; was != nil {
			f.Log.Info("listening, which had failed", slog.Any("address", vip))
		}
	}
}

// errTooMany is the error of a place beyond the limit.
var errTooMany = errors.New("too many listeners for the limit of open files (RLIMIT_NOFILE)")

// open opens a listener, and returns how to close it.
func (f *Forwarder) open(vip model.VIP) (closed func(), err error) {
	at := netip.AddrPortFrom(vip.Addr, vip.Port).String()
	if vip.Protocol == model.UDP {
		c, err := f.sockets.ListenPacket(f.ctx, "udp", at)
		if err != nil {
			return nil, err
		}
		return f.serveUDP(vip, c.(*net.UDPConn)), nil
	}
	l, err := f.sockets.Listen(f.ctx, "tcp", at)
	if err != nil {
		return nil, err
	}
	return f.serveTCP(vip, l.(*net.TCPListener)), nil
}

// sayFailed reports a listener that can't be opened, unless it was reported before. An address that the node
// does not have is not alone, so there is one line for all.
func (f *Forwarder) sayFailed(vip model.VIP, was, err error) {
	switch name := f.now.Load().places[vip].Port.Name; {
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		f.absent.Do(func() { f.Log.Warn("addresses that the node does not have are not served") })
	case was == nil || was.Error() != err.Error():
		f.fail("cannot listen; retrying", name, fmt.Errorf("service port %v: %w", name, err))
	}
}

// sayUnserved reports the new service ports that no listener can serve.
func (f *Forwarder) sayUnserved(old, now *model.Snapshot) {
	for _, family := range model.Families {
		for c := range now.Family(family).ServicePortChanges(old.Family(family)) {
			if f.Scope == Everything && c.Old == nil && c.New.Name.Protocol == model.SCTP {
				err := fmt.Errorf("service port %v is not served: the backend userspace has no SCTP", c.New.Name)
				f.fail("not served", c.New.Name, err)
			}
		}
	}
}

func (f *Forwarder) fail(what string, name model.ServicePortName, err error) {
	f.Log.Warn(what, slog.Any("err", err))
	if f.Failed != nil {
		f.Failed(name.NamespacedName, err)
	}
}
