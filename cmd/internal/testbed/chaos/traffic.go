package main

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// path is how clients reach a Service.
type path struct {
	network string
	to      netip.AddrPort
}

func paths() []path {
	return []path{
		{"tcp4", webVIP}, {"tcp6", webVIP6}, {"udp4", webVIP},
		{"tcp4", netip.AddrPortFrom(netip.MustParseAddr(lab.NodeIP4), webNodePort)},
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
}

// traffic are the clients.
type traffic struct {
	w    *world
	stop context.CancelFunc
	wait sync.WaitGroup

	mu sync.Mutex
	counts
}

// startTraffic connects from now on, until end.
func startTraffic(ctx context.Context, w *world) (*traffic, error) {
	ctx, stop := context.WithCancel(ctx)
	tr := &traffic{w: w, stop: stop}
	for _, p := range paths() {
		for range keptConns {
			conn, err := w.Client.Dial(ctx, p.network, p.to)
			if err != nil {
				tr.end()
				return nil, err
			}
			tr.wait.Go(func() { tr.keep(ctx, conn) })
		}
		load := lab.Load{Rate: w.o.rate, Timeout: w.o.within, Ask: func(ctx context.Context) (lab.Answer, error) {
			began := time.Now()
			a, err := w.Client.Ask(ctx, p.network, p.to)
			tr.count(began, a, err)
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
func (tr *traffic) count(began time.Time, a lab.Answer, err error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.sent++
	switch {
	case err != nil:
		tr.lost++
		tr.note(began, err)
	case a.Pod != "pod-1" && a.Pod != "pod-2":
		tr.wrong++
		tr.note(began, fmt.Errorf("%s answers, which is no endpoint", a.Pod))
	}
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
