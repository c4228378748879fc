package scenarios

import (
	"net/netip"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// Flows without a kernel: the decisions of model.Decide.

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
