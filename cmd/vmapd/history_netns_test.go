package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/history"
	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/sync/conntrack"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// Under load, while objects change all the time, each operation is checked against the snapshots that were in force
// meanwhile.

var (
	historyTime = flag.Duration("history", 5*time.Second, "how long TestHistories runs for each backend")
	historySeed = flag.Uint64("history-seed", 1, "the first round of TestHistories")
	historyOnly = flag.String("history-backends", "nftables,iptables-legacy", "the backends of TestHistories, with commas")
)

const (
	historyRound = time.Minute // at most: then there is a new world, with another configuration
	historyRate  = 200         // operations a second with a port of their own
	historyFlows = 16          // that go on
	historyLimit = 200         // operations at a time
	// A machine that is busy with other things stalls for seconds, and loses nothing.
	historyPatience = 10 * time.Second
	// What a snapshot drops is not waited for as long.
	historySilence = 2 * time.Second
)

func TestHistories(t *testing.T) {
	t.Parallel()
	for _, tr := range trackers {
		if !strings.Contains(","+*historyOnly+",", ","+tr.name+",") {
			continue
		}
		t.Run(tr.name, func(t *testing.T) {
			t.Parallel() // waiting for what is silent is most of the time
			properties := history.Backend{Tables: true}
			if tr.name == "nftables" {
				properties = history.Backend{Hashes: true, Purge: purgeTime}
			}
			var sum history.Report
			seed := *historySeed
			for end := time.Now().Add(*historyTime); time.Now().Before(end); seed++ {
				h := newHistorian(t, seed, tr.open, properties)
				h.run(min(historyRound, time.Until(end)))
				r := h.history.Check()
				for _, text := range r.Texts {
					t.Errorf("-history-seed=%d: %s", seed, text)
				}
				if sum.Add(r); testing.Verbose() {
					t.Logf("round %d: %d operations, %d contradictions", seed, r.Operations, r.Contradictions)
				}
				h.close()
			}
			t.Logf("%d rounds: %v", seed-*historySeed, &sum)
			for _, result := range []history.Result{history.Answered, history.Refused, history.Silent} {
				if sum.Count(result, history.Decided) == 0 {
					t.Errorf("no operation was %v: nothing is tested", result)
				}
			}
			if sum.Passes == 0 || sum.Middle == 0 {
				t.Errorf("%d passes over flows, %d operations during an Apply: nothing is tested", sum.Passes, sum.Middle)
			}
		})
	}
}

// historian changes objects and connects, in one world, and notes what happens.
type historian struct {
	*plane
	t       *testing.T
	history *history.History
	state   *reconcile.State
	start   time.Time
	seed    uint64
	config  model.Config
	close   func()

	clients [len(model.Families)][]netip.Addr // the client's addresses
	ports   map[*lab.Namespace]*atomic.Uint32 // each is used once
}

// historyPods is the number of pods. Those from remotePod on are on another node.
const historyPods, remotePod = 5, 3

func newHistorian(t *testing.T, seed uint64, open func(*testing.T, *lab.Namespace) reconcile.Backend, b history.Backend) *historian {
	t.Helper()
	if err := lab.Available(); err != nil {
		t.Skip(err)
	}
	w, err := lab.New(t.Context(), lab.Config{Pods: historyPods})
	if err != nil {
		t.Fatal(err)
	}
	h := &historian{
		plane: &plane{World: w}, t: t, start: time.Now(), seed: seed,
		history: &history.History{Backend: b, Node: [2]netip.Addr{netip.MustParseAddr(lab.NodeIP4), netip.MustParseAddr(lab.NodeIP6)}},
		ports:   map[*lab.Namespace]*atomic.Uint32{w.Client: {}, w.Node: {}},
	}
	for _, p := range w.Pods() {
		h.ports[p.Namespace] = &atomic.Uint32{}
	}
	h.serveEverywhere(t)
	for _, f := range model.Families {
		h.clients[f] = clientAddrs(t, w, f, 8)
	}
	h.config = h.random(0).config(int(seed))
	stop := h.program(open)
	h.close = sync.OnceFunc(func() {
		stop()
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(h.close)
	return h
}

// random returns one of the round's sources of chance.
func (h *historian) random(n uint64) randomLab { return randomLab{rand.New(rand.NewPCG(h.seed, n))} }

func (h *historian) now() time.Duration { return time.Since(h.start) }

// noted notes when each Apply begins and ends.
type noted struct {
	reconcile.Backend
	h *historian
}

func (n noted) Apply(ctx context.Context, s *model.Snapshot) error {
	n.h.history.Begin(s, n.h.now())
	err := n.Backend.Apply(ctx, s)
	n.h.history.End(n.h.now(), err)
	if err != nil && ctx.Err() == nil {
		n.h.t.Error(err)
	}
	return err
}

// Done implements reconcile.Observer, behind that which cleans up flows.
func (n noted) Done(reconcile.Round) { n.h.history.Told(n.h.now()) }

// program programs the node, and cleans up its flows, as the daemon does. It returns after the first Apply.
func (h *historian) program(open func(*testing.T, *lab.Namespace) reconcile.Backend) (stop func()) {
	h.t.Helper()
	var ns *os.File
	if err := h.Node.Do(func() (err error) { ns, err = os.Open("/proc/thread-self/ns/net"); return err }); err != nil {
		h.t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	backend := noted{open(h.t, h.Node), h}
	cleanUp := conntrack.New(conntrack.Options{Log: log, NetNS: int(ns.Fd()), Interval: 20 * time.Millisecond, Report: func(p conntrack.Pass) {
		if p.Err != nil {
			h.t.Errorf("clean-up of %v flows: %v", p.Family, p.Err)
			return
		}
		h.history.Passed(p.Family, p.Started.Sub(h.start), h.now())
	}})
	builder := modeltest.Builder(h.config)
	for _, o := range h.objects() {
		o.Set(builder)
	}
	h.state = reconcile.NewState(builder, 0)
	first := make(chan struct{}, 1)
	loop := &reconcile.Loop{State: h.state, Backend: backend, Log: log, Observers: []reconcile.Observer{cleanUp, backend, onceDone(first)}}
	ctx, cancel := context.WithCancel(h.t.Context())
	var running sync.WaitGroup
	running.Go(func() { loop.Run(ctx) })
	running.Go(func() { cleanUp.Run(ctx) })
	<-first
	return func() {
		cancel()
		running.Wait()
		if c, ok := backend.Backend.(io.Closer); ok {
			_ = c.Close() // the world ends
		}
		_ = ns.Close()
	}
}

// onceDone receives after a round.
type onceDone chan struct{}

func (o onceDone) Done(reconcile.Round) { reconcile.Signal(o) }

// run makes load and changes for some time, and waits for the last answers.
func (h *historian) run(d time.Duration) {
	ctx, cancel := context.WithTimeout(h.t.Context(), d)
	defer cancel()
	var wait sync.WaitGroup
	wait.Go(func() { h.change(ctx) })
	all, ended := context.WithCancel(h.t.Context())
	var witness sync.WaitGroup
	witness.Go(func() { h.witness(all) })
	for n := range historyFlows {
		wait.Go(func() { h.flow(ctx, h.random(uint64(100+n))) })
	}
	var mu sync.Mutex
	r := h.random(1)
	load := lab.Load{Rate: historyRate, Limit: historyLimit, Timeout: historyPatience, Ask: func(ctx context.Context) (lab.Answer, error) {
		mu.Lock()
		o, from := h.operation(r)
		mu.Unlock()
		return lab.Answer{}, h.once(ctx, o, from)
	}}
	report := load.Run(ctx)
	wait.Wait()
	ended()
	witness.Wait()
	if report.Lost() > 0 { // errors of the test's own
		h.t.Errorf("-history-seed=%d: %v", h.seed, &report)
	}
}

// witness sends datagrams straight to a pod, which tell whether the machine stalls.
func (h *historian) witness(ctx context.Context) {
	to := netip.AddrPortFrom(h.Pods()[0].IP4, 8080)
	for ctx.Err() == nil {
		start := h.now()
		if _, err := h.Client.Ask(h.t.Context(), "udp", to); err != nil && h.t.Context().Err() == nil && lab.FailureOf(err) != lab.Timeout {
			h.t.Errorf("-history-seed=%d: %v", h.seed, err)
			return
		}
		h.history.Witness(start, h.now())
		time.Sleep(10 * time.Millisecond) // the pace
	}
}

// operation makes an operation, without its source port.
func (h *historian) operation(r randomLab) (*history.Operation, *lab.Namespace) {
	c, from := r.connection(h.plane)
	f := model.FamilyOf(c.Dest.Addr())
	if from == h.Client {
		c.Source = choose(r, h.clients[f]...)
	}
	if c.Dest.Addr() == netip.MustParseAddr(clusterIP(f, 43)) && r.IntN(2) == 0 {
		c.Dest = netip.AddrPortFrom(netip.MustParseAddr(sharedIP[f]), c.Dest.Port())
	}
	return &history.Operation{Connection: c, Pod: from != h.Client && from != h.Node}, from
}

// source takes a port that no operation of the namespace has had.
func (h *historian) source(o *history.Operation, from *lab.Namespace) netip.AddrPort {
	const first = 10000
	o.SourcePort = uint16(first + h.ports[from].Add(1))
	return netip.AddrPortFrom(o.Source, o.SourcePort)
}

// patience is how long an answer is waited for.
func (h *historian) patience(o *history.Operation) time.Duration {
	for _, d := range h.history.Decisions(o.Connection, h.now()) {
		if d.Verdict == model.Dropped || d.Verdict == model.NotOurs {
			return historySilence
		}
	}
	return historyPatience
}

// once makes an operation with a port of its own.
func (h *historian) once(ctx context.Context, o *history.Operation, from *lab.Namespace) error {
	source := h.source(o, from)
	ctx, cancel := context.WithTimeout(ctx, h.patience(o))
	defer cancel()
	o.Start = h.now()
	a, err := from.AskFromPort(ctx, source, o.Protocol.String(), o.Dest)
	return h.note(o, a, err)
}

// flow sends datagrams from one port until one is not answered, and then from another.
func (h *historian) flow(ctx context.Context, r randomLab) {
	const most = 200
	for ctx.Err() == nil {
		first, from := h.operation(r)
		if first.Protocol != model.UDP {
			continue
		}
		conn, err := from.DialFromPort(h.t.Context(), h.source(first, from), "udp", first.Dest)
		if err != nil {
			h.t.Error(err)
			return
		}
		var before *history.Operation
		for range 1 + r.IntN(most) {
			o := *first
			o.Before = before
			if ctx.Err() != nil || !h.next(&o, conn) {
				break
			}
			before = &o
			time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond) // the load's pace
		}
		_ = conn.Close() // over UDP, nothing is left
	}
}

// next makes the next operation of a flow. It reports whether that was answered.
func (h *historian) next(o *history.Operation, conn *lab.Conn) bool {
	ctx, cancel := context.WithTimeout(h.t.Context(), h.patience(o))
	defer cancel()
	o.Start = h.now()
	a, err := conn.Ask(ctx)
	if err := h.note(o, a, err); err != nil {
		h.t.Errorf("-history-seed=%d: %v", h.seed, err)
	}
	return err == nil
}

// note notes what became of an operation. The error is one that no rule can cause.
func (h *historian) note(o *history.Operation, a lab.Answer, err error) error {
	o.End = h.now()
	switch {
	case err == nil:
		name, port, _ := strings.Cut(a.Pod, ":")
		var number uint16
		if _, err := fmt.Sscan(port, &number); err != nil {
			return fmt.Errorf("an answer of %q: %w", a.Pod, err)
		}
		o.Endpoint, o.Seen = netip.AddrPortFrom(h.address(name, model.FamilyOf(o.Dest.Addr())), number), a.Source.Addr()
	case lab.FailureOf(err) == lab.Refused:
		o.Result = history.Refused
	case lab.FailureOf(err) == lab.Timeout:
		o.Result = history.Silent
	default:
		return err
	}
	h.history.Add(o)
	return nil
}

// address is that of a pod, or of the node.
func (h *historian) address(name string, f model.Family) netip.Addr {
	for i, p := range h.Pods() {
		if p.Name() == name {
			return modeltest.Pod(f, i)
		}
	}
	return h.history.Node[f]
}
