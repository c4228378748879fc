package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft/kernel"
)

// manyClientAddrs are prefixes of the addresses of 60,000 clients.
var manyClientAddrs = [...]netip.Prefix{
	model.IPv4: netip.MustParsePrefix("198.18.0.0/16"), model.IPv6: netip.MustParsePrefix("2001:db8:198:18::/112"),
}

func manyClient(f model.Family, n int) netip.Addr {
	a := manyClientAddrs[f].Addr().AsSlice()
	a[len(a)-2], a[len(a)-1] = byte(n>>8), byte(n)
	addr, _ := netip.AddrFromSlice(a)
	return addr
}

// addManyClients makes the client answer at the addresses of 60,000 clients.
func addManyClients(t *testing.T, w *lab.World) {
	t.Helper()
	if err := w.Client.Sysctl("net/ipv6/ip_nonlocal_bind", "1"); err != nil {
		t.Fatal(err)
	}
	for f, via := range [...]string{lab.ClientIP4, lab.ClientIP6} {
		option := [...]string{"-4", "-6"}[f]
		feed(t, w.Client, "", "ip", option, "route", "add", "local", manyClientAddrs[f].String(), "dev", "lo")
		feed(t, w.Node, "", "ip", option, "route", "add", manyClientAddrs[f].String(), "via", via)
	}
}

// rememberMany makes a Service remember 60,000 clients of each protocol and family, at its three pods.
func rememberMany(t *testing.T, w *lab.World, count int) {
	t.Helper()
	for _, f := range model.Families {
		for _, protocol := range []string{"tcp", "udp"} {
			var text strings.Builder
			fmt.Fprintf(&text, "add element %s vmapd affinity-default/web/%s/%s {", [...]string{"ip", "ip6"}[f], protocol, protocol)
			for n := range count {
				fmt.Fprintf(&text, " %v timeout 1h : %s . 8080,", manyClient(f, n), modeltest.Pod(f, n%3))
			}
			text.WriteString(" }\n")
			feed(t, w.Node, text.String(), "nft", "-f", "-")
		}
	}
}

// returned is a connection of a client that comes back.
type returned struct {
	network string
	start   time.Time
	took    time.Duration
	pod     string
	err     error
}

// Clients of an endpoint that goes come back all the time: none of them reaches it behind the transaction, and all others answer.
func TestSixtyThousandClientsComeBack(t *testing.T) {
	const clients, rate, before, after = 60_000, 100, time.Second, 4 * time.Second
	p := newPlane(t, 3, labConfig(), 8080)
	addManyClients(t, p.World)
	p.backend = openUnpurged(t, p.Node, kernel.Options{Unowned: true}) // nft adds elements
	p.set(t, append(webSlices([]int{1, 2, 3}), web().Sticky(3600))...)
	rememberMany(t, p.World, clients)

	var mu sync.Mutex
	var all []returned
	var asking sync.WaitGroup
	ask := func(network string, f model.Family, source netip.Addr) {
		r := returned{network: fmt.Sprintf("%s%d", network, [...]int{4, 6}[f]), start: time.Now()}
		for range 10 { // as a resolver does, a client sends a datagram again after a second
			ctx, cancel := context.WithTimeout(t.Context(), map[string]time.Duration{"tcp": 2 * patience, "udp": time.Second}[network])
			var got lab.Answer
			got, r.err = p.Client.AskFrom(ctx, source, network, frontends(f)[0])
			r.pod = got.Pod
			if cancel(); r.err == nil || network == "tcp" {
				break
			}
		}
		r.took = time.Since(r.start)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, r)
	}
	ctx, cancel := context.WithTimeout(t.Context(), before+after)
	defer cancel()
	var load sync.WaitGroup
	load.Go(func() {
		r := rand.New(rand.NewPCG(1, 2))
		for tick := time.NewTicker(time.Second / rate); ctx.Err() == nil; <-tick.C {
			for _, f := range model.Families {
				for _, network := range []string{"tcp", "udp"} {
					source := manyClient(f, r.IntN(clients))
					asking.Go(func() { ask(network, f, source) })
				}
			}
		}
	})
	time.Sleep(before)
	p.set(t, webSlices([]int{2, 3})...)
	gone := time.Now()
	if err := p.backend.Purge(t.Context()); err != nil {
		t.Error(err)
	}
	purged := time.Since(gone)
	load.Wait()
	asking.Wait()

	twice, longest := map[string]int{}, time.Duration(0)
	for _, r := range all {
		switch {
		case r.err != nil:
			t.Errorf("%s, begun %v behind the transaction: %v", r.network, r.start.Sub(gone), r.err)
		case r.start.After(gone) && r.pod == "pod-1":
			t.Errorf("%s, begun %v behind the transaction: %s answered, which is gone", r.network, r.start.Sub(gone), r.pod)
		}
		if longest = max(longest, r.took); r.took > 900*time.Millisecond {
			twice[r.network]++
		}
	}
	t.Logf("%d connections, clients purged after %v; second tries %v, longest time to an answer %v", len(all), purged, twice, longest)
	if len(twice) == 0 {
		t.Error("no client came back to the endpoint that is gone: nothing is tested")
	}
}
