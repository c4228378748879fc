package main

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/nftsim"
)

// What becomes of a flow without a kernel: what model.Decide says, and where the
// simulator ends up with the rules.

// expected is the outcome that the flow means.
func (f flow) expected() nftsim.Outcome {
	switch f.want {
	case "reject":
		return nftsim.Outcome{Verdict: nftsim.Reject, TCPReset: f.protocol == model.TCP}
	case "drop":
		return nftsim.Outcome{Verdict: nftsim.Drop}
	case "elsewhere":
		return nftsim.Outcome{To: map[netip.AddrPort]nftsim.Arrival{f.dest: {Share: 1}}}
	}
	want := nftsim.Outcome{To: map[netip.AddrPort]nftsim.Arrival{}}
	for _, e := range f.endpoints {
		want.To[e.addr] = nftsim.Arrival{Share: 1 / float64(len(f.endpoints)), Masquerade: e.masquerade}
	}
	return want
}

// decide asks the specification.
func (f flow) decide(snapshot *model.Snapshot, nodeAddrs []netip.Addr) (model.Decision, nftsim.Outcome) {
	d := model.Decide(snapshot, model.Connection{
		Source: f.source(nodeAddrs), Node: f.from.kind == nftsim.Node, Interface: f.from.iface(),
		Dest: f.dest, Protocol: f.protocol,
	})
	switch d.Fate {
	case model.Rejected:
		return d, nftsim.Outcome{Verdict: nftsim.Reject, TCPReset: f.protocol == model.TCP}
	case model.Dropped:
		return d, nftsim.Outcome{Verdict: nftsim.Drop}
	case model.NotOurs:
		return d, nftsim.Outcome{To: map[netip.AddrPort]nftsim.Arrival{d.Dest: {Share: 1}}}
	case model.Forwarded:
	}
	o := nftsim.Outcome{To: map[netip.AddrPort]nftsim.Arrival{}}
	for _, target := range d.Targets {
		o.To[target.Addr] = nftsim.Arrival{Share: 1 / float64(len(d.Targets)), Masquerade: target.SNAT.Masquerade()}
	}
	return d, o
}

// tries says how the tries of one client go together.
func tries(d model.Decision) string {
	switch {
	case len(d.Targets) < 2:
		return ""
	case d.Port.Affinity > 0, d.Port.Algorithm == model.SourceHash:
		return sticky
	case d.Port.Algorithm == model.RoundRobin:
		return inTurn
	}
	return ""
}

// checkDecision checks that the specification says what the flow says.
func (f flow) checkDecision(t *testing.T, snapshot *model.Snapshot, nodeAddrs []netip.Addr) {
	t.Helper()
	d, got := f.decide(snapshot, nodeAddrs)
	if diff := cmp.Diff(f.expected(), got, compareOutcomes...); diff != "" {
		t.Errorf("line %d of flows: model.Decide says %v, reason %d (-want +got):\n%s", f.line, d.Fate, d.Why, diff)
		return
	}
	want := f.tries
	if want == same {
		want = sticky
	}
	if got := tries(d); got != want {
		t.Errorf("line %d of flows: %q at the end, want %q", f.line, f.tries, got)
	}
}

var compareOutcomes = []cmp.Option{
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
	cmpopts.EquateApprox(0, 1e-9),
	cmpopts.IgnoreFields(nftsim.Outcome{}, "Trace"),
	cmpopts.IgnoreFields(nftsim.Arrival{}, "Remembered"),
}

// simulate runs a flow through the simulator. It returns the maps that remember the
// client, by endpoint; last is what the flow above returned.
func (f flow) simulate(t *testing.T, snapshot *model.Snapshot, nodeAddrs []netip.Addr, last memory) memory {
	t.Helper()
	got := f.simulateOnce(t, snapshot, nodeAddrs, memory{}, netip.AddrPort{})
	if diff := cmp.Diff(f.expected(), got, compareOutcomes...); diff != "" {
		t.Fatalf("line %d of flows: simulated (-want +got):\n%s\nrules met:\n%s", f.line, diff, strings.Join(got.Trace, "\n"))
	}
	remembered := memory{}
	for endpoint, a := range got.To {
		remembered[endpoint] = a.Remembered
	}
	d, _ := f.decide(snapshot, nodeAddrs)
	switch {
	case d.Fate != model.Forwarded || d.Port.Affinity == 0:
		if len(slices.Concat(slices.Collect(maps.Values(remembered))...)) > 0 {
			t.Errorf("line %d of flows: clients are remembered: %v", f.line, remembered)
		}
	case f.tries == same:
		f.checkMemory(t, snapshot, nodeAddrs, last)
	default:
		f.checkMemory(t, snapshot, nodeAddrs, remembered)
	}
	return remembered
}

// memory has, for each endpoint, the maps in which a client that got it is.
type memory map[netip.AddrPort][]string

// checkMemory checks that whoever got an endpoint gets it again, and no other.
func (f flow) checkMemory(t *testing.T, snapshot *model.Snapshot, nodeAddrs []netip.Addr, m memory) {
	t.Helper()
	for _, e := range f.endpoints {
		if len(m[e.addr]) == 0 {
			t.Errorf("line %d of flows: nobody remembers who got %v", f.line, e.addr)
			continue
		}
		want := nftsim.Outcome{To: map[netip.AddrPort]nftsim.Arrival{e.addr: {Share: 1, Masquerade: e.masquerade}}}
		got := f.simulateOnce(t, snapshot, nodeAddrs, m, e.addr)
		if diff := cmp.Diff(want, got, compareOutcomes...); diff != "" {
			t.Errorf("line %d of flows: a client that got %v comes back (-want +got):\n%s", f.line, e.addr, diff)
		}
	}
}

// simulateOnce runs the flow through the rules as they are when a client got an endpoint.
func (f flow) simulateOnce(t *testing.T, snapshot *model.Snapshot, nodeAddrs []netip.Addr, m memory, endpoint netip.AddrPort) nftsim.Outcome {
	t.Helper()
	sim, err := nftsim.New(nft.Compile(nil, snapshot.Family(f.family())), nodeAddrs...)
	if err != nil {
		t.Fatal(err)
	}
	source := f.source(nodeAddrs)
	for _, name := range m[endpoint] {
		if err := sim.Remember(name, source, endpoint); err != nil {
			t.Fatal(err)
		}
	}
	const clientPort = 40000
	got, err := sim.Run(nftsim.Packet{
		From: f.from.kind, Interface: f.from.iface(),
		Source: netip.AddrPortFrom(source, clientPort), Dest: f.dest, Protocol: f.protocol,
	})
	if err != nil {
		t.Fatal(fmt.Errorf("line %d of flows: %w", f.line, err))
	}
	return got
}
