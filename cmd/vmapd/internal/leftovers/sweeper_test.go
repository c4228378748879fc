package leftovers

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/reconcile"
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

func newProxied() *proxied {
	p := &proxied{}
	p.Sweeper = &Sweeper{
		Find: func() (Found, error) {
			if p.unknown != nil || p.chains == 0 {
				return nil, p.unknown
			}
			return Found{{Owner: host.OwnerKubeProxy, Kind: "iptables-nft chain", Number: p.chains, Remove: func() error {
				p.removals++
				if p.stuck == nil {
					p.chains = 0
				}
				return p.stuck
			}}}, nil
		},
		Log: slog.New(slog.DiscardHandler), Event: func(text string) { p.events = append(p.events, text) },
	}
	return p
}

// pass is an examination by doctor.
func (p *proxied) pass() { _, _, _ = p.Left() }

// Leftovers go after the first round that programs the node. What comes back shows, and is not removed: another proxy
// that is alive would put it back each time.
func TestSweepUntilClean(t *testing.T) {
	p := newProxied()
	check := func(when string, removals, chains int, back bool) {
		t.Helper()
		found, cameBack, _ := p.Left()
		if p.removals != removals || p.chains != chains || cameBack != back || back != (found.String() != "") {
			t.Errorf("%s: %d removals, %d chains, %v came back: %v", when, p.removals, p.chains, found, cameBack)
		}
	}
	p.chains = 7
	p.pass()
	p.Done(reconcile.Round{Err: errors.New("no")})
	check("nothing is programmed", 0, 7, false)
	p.Done(reconcile.Round{Err: &model.FamilyError{Ports: map[model.ServicePortName]bool{}, Err: errors.New("not this Service")}})
	check("at the start", 1, 0, false)
	p.chains = 7
	p.pass()
	check("it came back at once", 1, 7, true)
	p.chains = 0
	p.pass()
	p.Done(reconcile.Round{})
	check("nothing came back", 1, 0, false)
	p.chains = 7
	p.pass()
	p.Done(reconcile.Round{})
	check("it came back", 1, 7, true)
	p.chains = 0
	p.pass()
	check("the other proxy has ended", 1, 0, false)
	if len(p.events) > 0 {
		t.Errorf("events %q", p.events)
	}
}

// Leftovers that can't be removed are an event with a remedy, and are tried again without end.
func TestLeftoversThatStay(t *testing.T) {
	p := newProxied()
	p.chains, p.stuck = 7, errors.New("operation not permitted")
	p.Done(reconcile.Round{})
	for range 10 {
		p.pass()
	}
	if p.removals < 10 || len(p.events) != 1 || !strings.Contains(p.events[0], "7 × iptables-nft chain") || !strings.Contains(p.events[0], Remedy) {
		t.Errorf("%d removals, events %q", p.removals, p.events)
	}
	if found, back, _ := p.Left(); numberOf(found, "iptables-nft chain") != 7 || back {
		t.Errorf("found %v, came back: %v", found, back)
	}
	p.stuck = nil
	p.pass()
	if found, back, _ := p.Left(); p.chains != 0 || found.String() != "" || back {
		t.Errorf("%d chains, found %v", p.chains, found)
	}
}

// What can't be looked for is unknown: not nothing, and not removed.
func TestLeftoversThatAreUnknown(t *testing.T) {
	p := newProxied()
	check := func(when string, unknown error) {
		t.Helper()
		if found, _, err := p.Left(); !errors.Is(err, unknown) || (err == nil) != (unknown == nil) {
			t.Errorf("%s: found %v, %v; want %v", when, found, err, unknown)
		}
	}
	p.chains, p.unknown = 7, errors.New("the program is missing")
	p.Done(reconcile.Round{})
	check("at the start", p.unknown)
	if len(p.events) != 1 {
		t.Errorf("events %q", p.events)
	}
	p.unknown = nil
	p.pass()
	check("with the program", nil)
	p.unknown = errors.New("the program is missing")
	p.pass()
	check("without it again", p.unknown)
}

func TestTextOfLeftovers(t *testing.T) {
	got := Found{
		{Owner: host.OwnerKubeProxy, Kind: kindTable, Number: 1},
		{Owner: host.OwnerKubeProxy, Kind: kindTable, Number: 1},
		{Owner: host.OwnerVmapd, Kind: kindTable, Number: 1},
		{Owner: host.OwnerVmapd, Kind: "iptables-legacy chain", Number: 3},
		{Owner: host.OwnerKubeProxy, Kind: host.KindDevice, Number: 1},
	}
	const text = "of kube-proxy: 1 × IPVS device, 2 × nftables table; of vmapd: 1 × nftables table, 3 × iptables-legacy chain"
	if diff := cmp.Diff(text, got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
