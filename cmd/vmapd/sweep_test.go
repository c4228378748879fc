package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/kernel"
)

// proxied is a node on which somebody else has some chains.
type proxied struct {
	*sweeper
	chains   int
	removals int
	stuck    error
	events   []string
	log      syncBuffer
}

func newProxied(t *testing.T) *proxied {
	t.Helper()
	p := &proxied{}
	chain := host.Leftover{Owner: host.OwnerKubeProxy, Kind: host.KindNFTChain}
	event := func(text string) { p.events = append(p.events, text) }
	log := slog.New(slog.NewTextHandler(&p.log, nil))
	p.sweeper = &sweeper{
		removals: []func() error{func() error {
			p.removals++
			if p.stuck == nil {
				p.chains = 0
			}
			return p.stuck
		}},
		find:   func(bool) (found, error) { return found{chain: p.chains}, nil },
		again:  func() { go p.applied(t.Context()) }, // as a round does
		rivals: &rivals{log: log, event: event}, log: log, event: event,
	}
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	go p.watch(ctx, func() {})
	return p
}

// jam makes removals fail with an error.
func (p *proxied) jam(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stuck = err
}

// put makes the other proxy have so many chains.
func (p *proxied) put(chains int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.chains = chains
}

// after lets time pass.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// What comes back is removed again, but not for ever: another proxy that is alive would put it
// back each time.
func TestTwoProxiesDoNotFight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProxied(t)
		check := func(when string, removals, chains, events int) {
			t.Helper()
			want := fmt.Sprintf("%d removals, %d chains, %d events", removals, chains, events)
			got := fmt.Sprintf("%d removals, %d chains, %d events", p.removals, p.chains, len(p.events))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s%s", when, diff, strings.Join(p.events, "\n"))
			}
		}
		p.put(7)
		after(time.Minute)
		check("before the first Apply nothing is touched", 0, 7, 0)
		p.applied(t.Context())
		check("at the start", 1, 0, 0)
		after(time.Minute)
		p.applied(t.Context())
		check("nothing came back", 1, 0, 0)

		p.put(7)
		after(settleTime)
		p.put(0)
		check("it came back for a moment", 1, 0, 0)
		after(time.Minute)
		p.put(7)
		after(settleTime)
		check("it came back, and vmapd may be about to end", 1, 7, 0)
		after(lookInterval)
		check("it came back", 2, 0, 1)
		p.put(7)
		after(settleTime + lookInterval)
		check("it came back again", 2, 7, 2)
		if !strings.Contains(p.events[1], "leaves them alone") {
			t.Errorf("the event does not tell: %s", p.events[1])
		}
		after(signRepeat - lookInterval)
		check("soon after", 2, 7, 2)
		after(2 * restingLook)
		check("some minutes later it is told again", 2, 7, 3)
		if signs := p.rivals.current(); len(signs) != 1 || signs[signIPTables] == "" || p.remaining().String() == "" {
			t.Errorf("signs %q, leftovers %q", signs, p.remaining())
		}
		after(restTime)
		if p.removals != 3 || p.chains != 0 {
			t.Errorf("after a rest: %d removals, %d chains", p.removals, p.chains)
		}
		after(2 * signMemory)
		if signs := p.rivals.current(); len(signs) != 0 || p.remaining().String() != "" {
			t.Errorf("the other proxy has ended: signs %q, leftovers %q", signs, p.remaining())
		}
	})
}

// Leftovers that can't be removed are counted, tell what to do, and are tried again without end.
func TestLeftoversThatStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProxied(t)
		p.put(7)
		p.jam(errors.New("operation not permitted"))
		p.applied(t.Context())
		after(10*leftoversRetry + time.Second)
		if p.removals < 10 || len(p.events) != 1 || !strings.Contains(p.events[0], "7 × iptables-nft chain") || !strings.Contains(p.events[0], leftoversRemedy) {
			t.Errorf("%d removals, events %q", p.removals, p.events)
		}
		if got := p.counts()[host.Leftover{Owner: host.OwnerKubeProxy, Kind: host.KindNFTChain}]; got != 7 {
			t.Errorf("want 7 counted, got %d", got)
		}
		p.jam(nil)
		after(leftoversRetry + lookInterval)
		if p.chains != 0 || len(p.rivals.current()) != 0 {
			t.Errorf("%d chains, signs %q", p.chains, p.rivals.current())
		}
	})
}

// An instance of vmapd that waits for another one to end is no sign of another proxy, unless it
// takes too long.
func TestAnotherOwnerOfTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := &flatBackend{err: fmt.Errorf("table vmapd is %w", kernel.ErrOwned)}
		r := &rivals{log: slog.New(slog.DiscardHandler), event: func(string) {}}
		p := &dataplane{Backend: backend, rivals: r, sweep: newProxied(t).sweeper}
		apply := func(after time.Duration, want string) {
			t.Helper()
			time.Sleep(after)
			if err := p.Apply(t.Context(), new(model.Snapshot)); !errors.Is(err, backend.err) {
				t.Fatal(err)
			}
			if got := r.current()[signOwner]; got != want {
				t.Errorf("sign %q, want %q", got, want)
			}
		}
		apply(0, "")
		apply(handOver, "")
		apply(time.Second, "table vmapd is owned by another process; waiting for it to end")
		backend.err = nil
		apply(time.Second, "")
	})
}

func TestSignsOfLeftovers(t *testing.T) {
	of := func(owner, kind string) host.Leftover { return host.Leftover{Owner: owner, Kind: kind} }
	got := found{
		of(host.OwnerKubeProxy, kindTable): 2, of(host.OwnerVmapd, kindTable): 1, of(host.OwnerVmapd, host.KindLegacyChain): 3,
		of(host.OwnerKubeProxy, host.KindDevice): 1, of(host.OwnerKubeProxy, host.KindNFTChain): 0,
	}
	want := map[string]string{signNFTables: host.OwnerKubeProxy, signIPTables: host.OwnerVmapd, signIPVS: host.OwnerKubeProxy}
	if diff := cmp.Diff(want, got.signs()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	const text = "of kube-proxy: 1 × IPVS device, 2 × nftables table; of vmapd: 3 × iptables-legacy chain, 1 × nftables table"
	if diff := cmp.Diff(text, got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
