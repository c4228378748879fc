package userspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/vmapd/vmapd/model"
)

// retry is the time between two attempts to open a listener. Each snapshot is an occasion, too.
const retry = time.Second

// Options of a Forwarder. Without Loopback and SetAddresses, it serves everything on the addresses that the node has.
type Options struct {
	Loopback bool // only node ports, on 127.0.0.1 and ::1: beside a backend in the kernel, which can't
	// SetAddresses gives the node the addresses of Services, and takes away others that it gave; nil: only addresses
	// that the node has are served. One that fails does not keep the others from it.
	SetAddresses func(addrs map[netip.Addr]bool) error
	// Failed is called when a service port can't be served in full, once for each reason. It must not block.
	Failed func(service model.NamespacedName, err error)
	Log    *slog.Logger // gets the same, and at level Debug connections and datagrams that fail
}

// Forwarder keeps listeners in line with snapshots. A port that another process has is retried until it is free;
// all others are served meanwhile.
type Forwarder struct {
	Options
	sockets    sockets
	limits     limits
	ctx        context.Context // ends with the Forwarder
	end        context.CancelFunc
	now        atomic.Pointer[wanted] // by which is decided
	slots      chan struct{}          // one for each TCP connection there may be
	numClients atomic.Int64           // of UDP
	tasks      sync.WaitGroup         // all goroutines
	buffers    sync.Pool              // of *[maxDatagram]byte
	visitors   *cache.LRUExpireCache  // the endpoint of each visitor
	accepted   [len(model.Families)]atomic.Uint64

	mu        sync.Mutex
	listeners map[model.VIP]io.Closer
	missing   map[model.VIP]error // why there is no listener
	failures  [len(model.Families)]uint64
	absent    sync.Once // to say that the node does not have addresses
	flows     map[*flow]struct{}
}

// sockets opens sockets. Tests have their own, as their endpoints are servers on loopback.
type sockets interface {
	Listen(ctx context.Context, network, address string) (net.Listener, error)
	ListenPacket(ctx context.Context, network, address string) (net.PacketConn, error)
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// New returns a Forwarder that listens nowhere before the first snapshot.
func New(o Options) *Forwarder {
	system := &struct {
		net.ListenConfig
		net.Dialer
	}{}
	system.ListenConfig.SetMultipathTCP(false) // there is one path
	f := &Forwarder{
		Options: o, sockets: system, limits: limitsFor(openFiles()),
		buffers:   sync.Pool{New: func() any { return new([maxDatagram]byte) }},
		visitors:  cache.NewLRUExpireCache(mostVisitors),
		listeners: map[model.VIP]io.Closer{}, missing: map[model.VIP]error{}, flows: map[*flow]struct{}{},
	}
	f.slots = make(chan struct{}, f.limits.conns)
	f.now.Store(want(new(model.Snapshot), o.Loopback))
	f.ctx, f.end = context.WithCancel(context.Background())
	return f
}

// Run retries what failed until ctx ends. When it returns, all listeners are closed, all connections are reset, and all
// goroutines have ended. Call it once.
func (f *Forwarder) Run(ctx context.Context) {
	tick := time.NewTicker(retry)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			f.end()
			f.serve(nil)
			f.tasks.Wait()
			return
		case <-tick.C:
			f.mu.Lock()
			f.openMissing()
			f.mu.Unlock()
		}
	}
}

// Resync does nothing: each Apply reads which addresses the node has.
func (f *Forwarder) Resync() {}

// Apply makes the addresses and the listeners match a snapshot. A port that is taken is no error: Run opens the
// listener when it is free. Without SetAddresses, there is no error.
func (f *Forwarder) Apply(_ context.Context, s *model.Snapshot) (err error) {
	w := want(s, f.Loopback)
	if f.SetAddresses != nil {
		err = f.SetAddresses(w.addrs)
	}
	f.serve(w)
	return err
}

// serve closes the listeners that nobody wants, opens the missing ones, and ends the flows that are stale. After the
// end, nothing is wanted.
func (f *Forwarder) serve(w *wanted) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx.Err() != nil {
		w = want(new(model.Snapshot), f.Loopback)
	}
	f.now.Store(w)
	for vip, socket := range f.listeners {
		if !w.isPlace(vip) {
			_ = socket.Close() // nothing can be done about it
			delete(f.listeners, vip)
		}
	}
	maps.DeleteFunc(f.missing, func(vip model.VIP, _ error) bool { return !w.isPlace(vip) })
	f.openMissing()
	for fl := range f.flows {
		f.review(fl)
	}
}

// openMissing tries to open the listeners that are missing. One that can't be opened is reported, unless it was
// before. f.mu is held.
func (f *Forwarder) openMissing() {
	for vip, at := range f.now.Load().places {
		if f.listeners[vip] != nil {
			continue
		}
		socket, err := f.listen(vip)
		if err == nil {
			f.listeners[vip] = socket
			delete(f.missing, vip)
			continue
		}
		was := f.missing[vip]
		f.missing[vip] = err
		f.failures[model.FamilyOf(vip.Addr)]++
		switch {
		case errors.Is(err, syscall.EADDRNOTAVAIL): // it is not alone, so there is one line for all
			f.absent.Do(func() { f.Log.Warn("addresses that the node does not have are not served") })
		case was == nil || was.Error() != err.Error():
			err = fmt.Errorf("service port %v: %w", at.Name, err)
			f.Log.Warn("cannot listen; retrying", slog.Any("err", err))
			f.Failed(at.Name.NamespacedName, err)
		}
	}
}

// listen opens a listener.
func (f *Forwarder) listen(vip model.VIP) (io.Closer, error) {
	at := netip.AddrPortFrom(vip.Addr, vip.Port).String()
	switch {
	case vip.Protocol == model.SCTP:
		return nil, errors.New("the backend userspace has no SCTP")
	case len(f.listeners) >= f.limits.listeners:
		return nil, errors.New("too many listeners for the limit of open files (RLIMIT_NOFILE)")
	case vip.Protocol == model.TCP:
		l, err := f.sockets.Listen(f.ctx, "tcp", at)
		if err == nil {
			f.tasks.Go(func() { f.serveTCP(vip, l.(*net.TCPListener)) })
		}
		return l, err
	}
	c, err := f.sockets.ListenPacket(f.ctx, "udp", at)
	if err == nil {
		l := &udpListener{Forwarder: f, vip: vip, socket: c.(*net.UDPConn)}
		f.tasks.Go(l.serve)
	}
	return c, err
}

// Stats are figures of one family about node ports on loopback, and attempts and connections of all.
type Stats struct {
	Listeners int    // open now
	Missing   int    // can't be opened now
	Failures  uint64 // failed attempts to open a listener
	Accepted  uint64 // TCP connections, and new clients of UDP
}

// Stats returns the figures of each family.
func (f *Forwarder) Stats() (stats [len(model.Families)]Stats) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for vip := range f.now.Load().places {
		of := &stats[model.FamilyOf(vip.Addr)]
		switch {
		case !vip.Addr.IsLoopback():
		case f.listeners[vip] != nil:
			of.Listeners++
		default:
			of.Missing++
		}
	}
	for family := range stats {
		stats[family].Failures, stats[family].Accepted = f.failures[family], f.accepted[family].Load()
	}
	return stats
}

// Compare returns why listeners of a family are missing; with a service port, those of that alone.
func (f *Forwarder) Compare(
	_ context.Context, family model.Family, _ *model.Snapshot, of *model.ServicePort,
) (list []string, _ error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for vip, err := range f.missing {
		at := f.now.Load().places[vip]
		if model.FamilyOf(vip.Addr) == family && (of == nil || at.Name == of.Name) {
			list = append(list, fmt.Sprintf("no listener at %v for %v: %v", vip, at.Name, err))
		}
	}
	slices.Sort(list)
	return list, nil
}
