package lab

import (
	"net/netip"
	"sync"
	"testing"
)

// Each of many flows at once has a port and an answer of its own.
func TestFlowsAreAnswered(t *testing.T) {
	w := newWorld(t, 1)
	p := w.Pods()[0]
	f, err := w.Client.OpenFlows(netip.MustParseAddr(ClientIP4), netip.AddrPortFrom(p.IP4, port))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const count = 100
	var mu sync.Mutex
	sources := map[netip.AddrPort]bool{}
	var asking sync.WaitGroup
	for range count {
		asking.Go(func() {
			ctx, cancel := withTimeout(t.Context())
			defer cancel()
			a, err := f.Ask(ctx)
			if err != nil || a.Pod != p.Name() || a.Source.Addr().String() != ClientIP4 {
				t.Errorf("got %+v, %v", a, err)
			}
			mu.Lock()
			defer mu.Unlock()
			sources[a.Source] = true
		})
	}
	asking.Wait()
	if len(sources) != count {
		t.Errorf("want %d sources, got %d", count, len(sources))
	}
}
