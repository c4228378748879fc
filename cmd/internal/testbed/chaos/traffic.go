package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// path is how clients reach a Service.
type path struct {
	network string
	to      netip.AddrPort
	from    string // a pod; empty: the client
}

// clients are those of a fault that has its own. They keep no connections.
type clients struct {
	paths  []path
	within time.Duration // for an answer
}

func paths() []path {
	return []path{
		{network: "tcp4", to: webVIP},
		{network: "tcp6", to: webVIP6},
		{network: "udp4", to: webVIP},
		{network: "tcp4", to: netip.AddrPortFrom(netip.MustParseAddr(lab.NodeIP4), webNodePort)},
	}
}

// Kept connections are used all the time.
const (
	keptConns = 5 // for each path
	keptPause = 50 * time.Millisecond
	keptMore  = 9 * time.Second // longer than for a new connection: the intervals between repeated segments grow
)

// counts are of all clients.
type counts struct {
	sent, lost, wrong int       // new connections
	kept, broken      int       // connections that are kept
	last              time.Time // when the last of what was lost, broken or answered wrongly had begun
	first             error     // the first of it
	asked             []asked   // all new connections
}

// traffic are the clients.
type traffic struct {
	w    *world
	stop context.CancelFunc
	wait sync.WaitGroup

	mu sync.Mutex
	counts
}

// asked is a new connection, or a query over UDP.
type asked struct {
	path  path
	began time.Time
	took  time.Duration
	pod   string // empty: it is lost
	open  bool   // its handshake was complete
}

func (a *asked) udp() bool { return strings.HasPrefix(a.path.network, "udp") }

// startTraffic connects from now on, until end.
func startTraffic(ctx context.Context, w *world, own *clients) (*traffic, error) {
	ctx, stop := context.WithCancel(ctx)
	tr := &traffic{w: w, stop: stop}
	all, keep := clients{paths(), w.o.within}, keptConns
	if own != nil {
		all, keep = *own, 0
	}
	for _, p := range all.paths {
		from, err := w.Machine(cmp.Or(p.from, w.Client.Name()))
		if err != nil {
			tr.end()
			return nil, err
		}
		for range keep {
			conn, err := from.Dial(ctx, p.network, p.to)
			if err != nil {
				tr.end()
				return nil, err
			}
			tr.wait.Go(func() { tr.keep(ctx, conn) })
		}
		load := lab.Load{Rate: w.o.rate, Timeout: all.within, Ask: func(ctx context.Context) (lab.Answer, error) {
			began := time.Now()
			a, err := from.Ask(ctx, p.network, p.to)
			tr.count(p, began, a, err)
			return a, err
		}}
		tr.wait.Go(func() { load.Run(ctx) })
	}
	return tr, nil
}

// keep uses a connection until it breaks, or the clients end.
func (tr *traffic) keep(ctx context.Context, conn *lab.Conn) {
	defer conn.Close()
	var began time.Time
	var err error
	for ; ctx.Err() == nil && err == nil; time.Sleep(keptPause) {
		asking, done := context.WithTimeout(context.WithoutCancel(ctx), tr.w.o.within+keptMore)
		began = time.Now()
		_, err = conn.Ask(asking)
		done()
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.kept++
	if err != nil {
		tr.broken++
		tr.note(began, fmt.Errorf("a kept connection: %w", err))
	}
}

// count counts a new connection.
func (tr *traffic) count(p path, began time.Time, a lab.Answer, err error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.sent++
	tr.asked = append(tr.asked, asked{p, began, time.Since(began), a.Pod, afterHandshake(err)})
	pods := webPods()
	if p.to == dnsVIP || p.to == dnsVIP6 {
		pods = dnsPods()
	}
	switch {
	case err != nil:
		tr.lost++
		tr.note(began, err)
	case !slices.ContainsFunc(pods, func(n int) bool { return a.Pod == podName(n) }):
		tr.wrong++
		tr.note(began, fmt.Errorf("%s answers, which is no endpoint", a.Pod))
	}
}

// afterHandshake reports whether an error is that of an open connection.
func afterHandshake(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op != "dial"
}

// note notes a loss. The caller holds the lock.
func (tr *traffic) note(began time.Time, err error) {
	if began.After(tr.last) {
		tr.last = began
	}
	if tr.first == nil {
		tr.first = err
	}
}

// end ends the clients, and waits for the last answers.
func (tr *traffic) end() counts {
	tr.stop()
	tr.wait.Wait()
	return tr.counts
}
