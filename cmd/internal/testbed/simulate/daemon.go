package simulate

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/nft/nftfake"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// daemon is a process of vmapd.
type daemon struct {
	w       *world
	number  int
	state   *reconcile.State
	feeds   []*feed
	host    []netip.Addr // as the daemon knows them
	backend *kernel.Backend
	foreign chan struct{}
	cancel  context.CancelFunc
	running sync.WaitGroup  // its goroutines
	dead    bool            // it was killed. The world's mutex guards it.
	full    bool            // the next Apply compares with the kernel
	failed  time.Time       // the last Apply did then; zero: it worked
	ports   map[uint32]bool // of its connections, also of former ones
	observers
	seen bool // Applies since the last change by somebody else compare, or have compared, both tables
}

// atRest is how long a round waits until everything else has done what it can.
const atRest = time.Microsecond

// start starts a daemon, if none runs.
func (w *world) start() {
	if w.daemon != nil {
		return
	}
	w.daemons++
	d := &daemon{
		w: w, number: w.daemons, foreign: make(chan struct{}, 1), full: true, ports: map[uint32]bool{},
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel = cancel
	b, err := kernel.Open(kernel.Options{Dial: d.dial, PieceSize: w.node.PieceSize})
	if err != nil {
		w.startFailed(err)
		return
	}
	unowned := w.node.Before69 // or a table is
	for _, f := range model.Families {
		_, persists := w.kernel.Owner(protocolOf[f], nft.TableName)
		unowned = unowned || !persists && w.kernel.TableGeneration(protocolOf[f], nft.TableName) > 0
	}
	if b.Owned() == unowned {
		w.fail("the daemon takes a fault for a kernel without owners")
	}
	b.ReadAhead() // what happens before the first round must not make it wrong
	const sources = 2
	d.backend, d.state = b, reconcile.NewState(model.NewBuilder(w.node.Config), sources)
	missing := len(kinds)
	for _, kind := range []string{"services", "endpointslices", "nodes", "servicecidrs"} {
		d.feeds = append(d.feeds, &feed{Name: kind, state: d.state, delivered: func() {
			if missing--; missing == 0 {
				d.state.Complete()
			}
		}})
	}
	d.observe()
	d.readHost()
	d.state.Complete()
	loop := &reconcile.Loop{
		State: d.state, Backend: watched{d}, Log: slog.New(slog.DiscardHandler), ForeignChange: d.foreign,
		Observers: []reconcile.Observer{d.tracker, d.flows},
		Before:    func() { time.Sleep(atRest) },
	}
	d.running.Go(func() { loop.Run(ctx) })
	d.running.Go(func() { d.flows.Run(ctx) })
	w.daemon = d
	w.note("daemon %d starts", d.number)
	w.wait()
}

// startFailed notes that a daemon could not start. The kubelet tries again, with a later step.
func (w *world) startFailed(err error) {
	w.note("daemon %d does not start: %v", w.daemons, err)
	if _, ok := errors.AsType[*kernel.UnsupportedError](err); ok {
		w.fail("the daemon takes a fault for something that the kernel lacks: %w", err)
	}
	if n := w.kernel.Sockets() - mostSockets; n > 0 {
		w.fail("the daemon that did not start leaves %d open connections", n)
	}
}

// readHost brings the addresses of the node's interfaces.
func (d *daemon) readHost() {
	if d.host == nil || !slices.Equal(d.host, d.w.server.host) {
		d.host = slices.Clone(d.w.server.host)
		d.state.Update(reconcile.Change{}, func(b *model.Builder) { b.SetHostAddresses(d.host) })
	}
}

// stop ends the daemon, as a signal does.
func (w *world) stop() {
	d := w.daemon
	if d == nil {
		return
	}
	d.cancel()
	d.running.Wait()
	if err := d.backend.Close(); err != nil && !d.isDead() {
		w.fail("the daemon does not end: %w", err)
	}
	w.daemon = nil
	w.trouble.Add(1)
	w.note("daemon %d ended", d.number)
	w.wait()
}

// bury removes what a killed daemon leaves.
func (w *world) bury() {
	if w.daemon != nil && w.daemon.isDead() {
		w.stop()
	}
}

func (d *daemon) isDead() bool {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	return d.dead
}

// dial opens a connection to the kernel.
func (d *daemon) dial() (kernel.Socket, error) {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	if d.dead {
		return nil, unix.EBADF
	}
	s := d.w.kernel.Dial()
	d.ports[s.Port()] = true
	return &socket{s, d}, nil
}

// watched is the daemon's backend. It reports to the world what is applied.
type watched struct{ *daemon }

func (d watched) Apply(ctx context.Context, s *model.Snapshot) error {
	w := d.w
	if ctx.Err() != nil {
		return ctx.Err()
	}
	w.mu.Lock()
	w.rounds++
	d.mayApply()
	w.began = w.trouble.Load()
	w.applying.Store(true)
	if d.full {
		d.full, d.seen = false, true
	}
	if w.between[len(w.between)-1] != s {
		w.between = append(w.between, s)
	}
	w.mu.Unlock()
	err := d.backend.Apply(ctx, s)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.applying.Store(false)
	w.refusing.Store(0)
	if d.dead {
		return err
	}
	if err != nil {
		d.failed = time.Now()
	} else {
		d.failed = time.Time{}
		w.between = []*model.Snapshot{s}
		w.refused.Store(false)
		w.tampered = w.tampered && !d.seen
		w.programmed = d.number
	}
	w.mustBe(s, err)
	w.note("applied, %d messages so far: %v", w.messages.Load(), err)
	return err
}

// leastRetry is the least time between a failure and the next try, unless there is something to compare.
const leastRetry = 100 * time.Millisecond

// mayApply checks that all is known and that no failure was just now. The caller holds the world's mutex.
func (d *daemon) mayApply() {
	for _, f := range d.feeds {
		if !f.listed {
			d.w.fail("a snapshot is applied before the list of %s came", f.Name)
		}
	}
	if since := time.Since(d.failed); since < leastRetry && !d.full {
		d.w.fail("a change that failed is tried again after %v", since)
	}
}

func (d watched) Resync() {
	d.full = true
	d.backend.Resync()
}

// socket is a connection of a daemon.
type socket struct {
	*nftfake.Socket
	d *daemon
}

// Send implements [kernel.Socket].
func (s *socket) Send(b []byte) error {
	w := s.d.w
	w.mu.Lock()
	if w.kills(s.d, false) {
		w.mu.Unlock()
		return unix.EBADF
	}
	before := w.kernel.Generation()
	w.mu.Unlock()
	err := s.Socket.Send(b)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kernel.Generation() != before {
		w.noteStale()
		w.check()
	}
	if w.kills(s.d, true) {
		return unix.EBADF
	}
	return err
}

// Receive implements [kernel.Socket].
func (s *socket) Receive() ([]byte, error) {
	if s.d.isDead() {
		return nil, unix.EBADF
	}
	return s.Socket.Receive()
}
