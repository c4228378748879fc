package scenarios

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/compile"
	"github.com/vmapd/vmapd/nft/nftsim"
)

// Flows without a kernel: the decisions of model.Decide, and the outcomes of the simulator.

// expected is the outcome that the flow means.
func (f flow) expected() modeltest.Outcome {
	switch f.want {
	case "reject":
		return modeltest.Outcome{Verdict: model.Rejected, TCPReset: f.protocol == model.TCP}
	case "drop":
		return modeltest.Outcome{Verdict: model.Dropped}
	}
	want := modeltest.Outcome{Verdict: model.Forwarded, To: map[netip.AddrPort]modeltest.Arrival{}}
	if f.want == "elsewhere" {
		want.To[f.dest] = modeltest.Arrival{Share: 1}
	}
	for _, e := range f.endpoints {
		want.To[e.addr] = modeltest.Arrival{Share: 1 / float64(len(f.endpoints)), Masquerade: e.masquerade}
	}
	return want
}

// connection is the flow's, as the node sees it.
func (f flow) connection(nodeAddrs []netip.Addr) model.Connection {
	return model.Connection{
		Source: f.source(nodeAddrs), Node: f.from.kind == fromNode, Interface: f.from.iface(),
		Dest: f.dest, Protocol: f.protocol,
	}
}

// tries returns the relation of the tries of one client.
func tries(d model.Decision) string {
	switch {
	case len(d.Targets) < 2:
		return ""
	case d.Port.Affinity > 0, d.Port.Algorithm == model.Maglev:
		return sticky
	}
	return ""
}

// checkDecision checks that the specification agrees with the flow.
func (f flow) checkDecision(t *testing.T, snapshot *model.Snapshot, nodeAddrs []netip.Addr) {
	t.Helper()
	d := model.Decide(snapshot, f.connection(nodeAddrs))
	if how := f.expected().Disagrees(modeltest.Expected(d)); how != "" {
		t.Errorf("line %d of flows: model.Decide says %v, reason %d: %s", f.line, d.Verdict, d.Why, how)
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

// simulate runs a flow through the simulator. It returns the maps that remember the
// client, by endpoint; last is what the flow above returned.
func (f flow) simulate(t *testing.T, snapshot *model.Snapshot, nodeAddrs []netip.Addr, last memory) memory {
	t.Helper()
	got := f.simulateOnce(t, snapshot, nodeAddrs, memory{}, netip.AddrPort{})
	d := model.Decide(snapshot, f.connection(nodeAddrs))
	want := f.expected()
	want.Slack = modeltest.Expected(d).Slack
	if how := want.Disagrees(got); how != "" {
		t.Fatalf("line %d of flows: simulated: %s\nrules met:\n%s", f.line, how, strings.Join(got.Trace, "\n"))
	}
	remembered := memory{}
	for endpoint, a := range got.To {
		remembered[endpoint] = a.Remembered
	}
	switch {
	case d.Verdict != model.Forwarded || d.Port.Affinity == 0:
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

// memory has, for each endpoint, the maps that record its clients.
type memory map[netip.AddrPort][]string

// checkMemory checks that a client of an endpoint gets it again, and no other.
func (f flow) checkMemory(t *testing.T, snapshot *model.Snapshot, nodeAddrs []netip.Addr, m memory) {
	t.Helper()
	for _, e := range f.endpoints {
		if len(m[e.addr]) == 0 {
			t.Errorf("line %d of flows: nobody remembers who got %v", f.line, e.addr)
			continue
		}
		alone := f
		alone.endpoints = []flowEndpoint{e}
		if how := alone.expected().Disagrees(f.simulateOnce(t, snapshot, nodeAddrs, m, e.addr)); how != "" {
			t.Errorf("line %d of flows: a client that got %v comes back: %s", f.line, e.addr, how)
		}
	}
}

// simulateOnce runs the flow through the rules as they are when a client got an endpoint.
func (f flow) simulateOnce(t *testing.T, snapshot *model.Snapshot, nodeAddrs []netip.Addr, m memory, endpoint netip.AddrPort) modeltest.Outcome {
	t.Helper()
	options := compile.Options{Timeouts: nft.RetryTimeouts(nft.NoSettings)}
	sim, err := nftsim.New(options.Compile(nil, snapshot.Family(f.family())).Table(), nodeAddrs...)
	if err != nil {
		t.Fatal(err)
	}
	c := f.connection(nodeAddrs)
	for _, name := range m[endpoint] {
		if err := sim.Remember(name, c.Source, endpoint); err != nil {
			t.Fatal(err)
		}
	}
	got, err := sim.Run(c)
	if err != nil {
		t.Fatal(fmt.Errorf("line %d of flows: %w", f.line, err))
	}
	return got.Outcome
}
