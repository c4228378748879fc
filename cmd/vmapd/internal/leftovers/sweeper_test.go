package leftovers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/legacy/host"
)

// proxied is a node on which somebody else has some chains.
type proxied struct {
	*Sweeper
	chains   int
	unknown  error // chains can't be looked for
	removals int
	stuck    error
	events   []string
}

func newProxied(t *testing.T) *proxied {
	t.Helper()
	p := &proxied{}
	chain := host.Leftover{Owner: host.OwnerKubeProxy, Kind: host.KindNFTChain}
	event := func(text string) { p.events = append(p.events, text) }
	log := slog.New(slog.DiscardHandler)
	p.Sweeper = NewSweeper(Options{
		Remove: func() error {
			p.removals++
			if p.stuck == nil {
				p.chains = 0
			}
			return p.stuck
		},
		Find: func(bool) (Found, error) {
			if p.unknown != nil {
				return Found{chain: host.Unknown}, p.unknown
			}
			return Found{chain: p.chains}, nil
		},
		Evidence: &Evidence{Log: log, Event: event}, Log: log, Event: event,
	})
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	go p.Watch(ctx, func() {})
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
		p.Applied(t.Context())
		check("at the start", 1, 0, 0)
		after(time.Minute)
		p.Applied(t.Context())
		check("nothing came back", 1, 0, 0)

		p.put(7)
		after(settleTime)
		p.put(0)
		check("it came back for a moment", 1, 0, 0)
		after(time.Minute)
		p.put(7)
		after(settleTime)
		check("it came back, and vmapd may be about to end", 1, 7, 0)
		after(LookInterval)
		check("it came back", 2, 0, 1)
		p.put(7)
		after(settleTime + LookInterval)
		check("it came back again", 2, 7, 2)
		if !strings.Contains(p.events[1], "after 1h0m0s") {
			t.Errorf("the event does not tell: %s", p.events[1])
		}
		after(evidenceRepeat - LookInterval)
		check("soon after", 2, 7, 2)
		after(2 * LookInterval)
		check("some minutes later it is told again", 2, 7, 3)
		if evidence := p.o.Evidence.Current(); len(evidence) != 1 || evidence[EvidenceIPTables] == "" || p.Remaining().String() == "" {
			t.Errorf("evidence %q, leftovers %q", evidence, p.Remaining())
		}
		after(restTime)
		if p.removals != 3 || p.chains != 0 {
			t.Errorf("after a rest: %d removals, %d chains", p.removals, p.chains)
		}
		after(LookInterval)
		if evidence := p.o.Evidence.Current(); len(evidence) != 0 || p.Remaining().String() != "" {
			t.Errorf("the other proxy has ended: evidence %q, leftovers %q", evidence, p.Remaining())
		}
	})
}

// Leftovers that can't be removed are counted, tell what to do, and are tried again without end.
func TestLeftoversThatStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProxied(t)
		p.put(7)
		p.jam(errors.New("operation not permitted"))
		p.Applied(t.Context())
		after(10*RetryTime + time.Second)
		if p.removals < 10 || len(p.events) != 1 || !strings.Contains(p.events[0], "7 × iptables-nft chain") || !strings.Contains(p.events[0], Remedy) {
			t.Errorf("%d removals, events %q", p.removals, p.events)
		}
		if got := p.Counts()[host.Leftover{Owner: host.OwnerKubeProxy, Kind: host.KindNFTChain}]; got != 7 {
			t.Errorf("want 7 counted, got %d", got)
		}
		p.jam(nil)
		after(RetryTime + LookInterval)
		if p.chains != 0 || len(p.o.Evidence.Current()) != 0 {
			t.Errorf("%d chains, evidence %q", p.chains, p.o.Evidence.Current())
		}
	})
}

// What can't be looked for is unknown: not nothing, and not removed.
func TestLeftoversThatAreUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProxied(t)
		chain := host.Leftover{Owner: host.OwnerKubeProxy, Kind: host.KindNFTChain}
		check := func(when string, count int, unknown ...string) {
			t.Helper()
			if n := p.Counts()[chain]; n != count || !slices.Equal(unknown, p.Remaining().Unknown()) {
				t.Errorf("%s: %d, unknown %q; want %d, %q", when, n, p.Remaining().Unknown(), count, unknown)
			}
		}
		check("before the first look", host.Unknown)
		p.put(7)
		p.unknown = errors.New("the program is missing")
		p.Applied(t.Context())
		check("at the start", host.Unknown, host.KindNFTChain)
		if len(p.events) != 1 {
			t.Errorf("events %q", p.events)
		}
		p.mu.Lock()
		p.unknown = nil
		p.mu.Unlock()
		after(RetryTime + LookInterval)
		check("with the program", 0)
		p.mu.Lock()
		p.unknown = errors.New("the program is missing")
		p.mu.Unlock()
		after(LookInterval)
		check("without it again", host.Unknown, host.KindNFTChain)
	})
}

func TestSignsOfLeftovers(t *testing.T) {
	of := func(owner, kind string) host.Leftover { return host.Leftover{Owner: owner, Kind: kind} }
	got := Found{
		of(host.OwnerKubeProxy, kindTable): 2, of(host.OwnerVmapd, kindTable): 1, of(host.OwnerVmapd, host.KindLegacyChain): 3,
		of(host.OwnerKubeProxy, host.KindDevice): 1, of(host.OwnerKubeProxy, host.KindNFTChain): 0,
	}
	want := map[string]string{EvidenceNFTables: host.OwnerKubeProxy, EvidenceIPTables: host.OwnerVmapd, EvidenceIPVS: host.OwnerKubeProxy}
	if diff := cmp.Diff(want, got.evidence()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	const text = "of kube-proxy: 1 × IPVS device, 2 × nftables table; of vmapd: 3 × iptables-legacy chain, 1 × nftables table"
	if diff := cmp.Diff(text, got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
