package modeltest

import (
	"fmt"
	"net/netip"

	"github.com/vmapd/vmapd/model"
)

// ClientPort is the source port of simulated connections.
const ClientPort = 40000

// Outcome says where the first packet of a connection goes. Expected makes it from a
// decision of the model, the simulators make it from rules.
type Outcome struct {
	Verdict  model.Verdict // never NotOurs: such a connection is Forwarded to its own destination
	TCPReset bool          // Rejected only: with a reset and not with an ICMP error

	// To holds, for Forwarded, each destination that a random choice can lead to.
	To map[netip.AddrPort]Arrival

	// Slack is by how much shares may differ, in an expected outcome: the endpoints of a lookup table have different
	// numbers of slots.
	Slack float64

	// Trace lists the rules that matched, in the order of their first match.
	Trace []string
}

// Arrival describes the packet at one of its destinations.
type Arrival struct {
	Share      float64 // of all connections
	Masquerade bool    // the source is the node's address
	Mark       uint32  // the packet's mark; iptables only

	// Remembered lists the maps or xt_recent lists that record this destination for the
	// client, sorted.
	Remembered []string
}

// Expected returns the outcome that a decision asks for.
func Expected(d model.Decision) Outcome {
	switch d.Verdict {
	case model.Rejected:
		return Outcome{Verdict: d.Verdict, TCPReset: d.Protocol == model.TCP}
	case model.Dropped:
		return Outcome{Verdict: d.Verdict}
	case model.NotOurs:
		return Outcome{Verdict: model.Forwarded, To: map[netip.AddrPort]Arrival{d.Dest: {Share: 1}}}
	case model.Forwarded:
	}
	o := Outcome{Verdict: d.Verdict, To: map[netip.AddrPort]Arrival{}}
	for _, target := range d.Targets {
		o.To[target.Addr] = Arrival{Share: 1 / float64(len(d.Targets)), Masquerade: target.SNAT.Masquerade()}
	}
	if slots := d.Port.SlotCount(d.TrafficPolicy); slots > 1 && d.Port.Algorithm.HasTable() {
		o.Slack = 0.05/float64(len(d.Targets)) + 1/float64(slots)
		if len(d.Targets)*20 > slots {
			o.Slack = 1 // an endpoint has one slot or two
		}
	}
	return o
}

// Disagrees describes the first difference between an expected outcome and a simulator's,
// or returns "". Shares may differ a little: iptables has probabilities of 31 bits.
func (o Outcome) Disagrees(got Outcome) string {
	tolerance := 1e-7 + o.Slack
	if o.Verdict != got.Verdict || o.TCPReset != got.TCPReset || len(o.To) != len(got.To) {
		got.Trace = nil
		return fmt.Sprintf("want %+v, got %+v", o, got)
	}
	for to, want := range o.To {
		a, ok := got.To[to]
		if off := a.Share - want.Share; !ok || a.Masquerade != want.Masquerade || off > tolerance || off < -tolerance {
			return fmt.Sprintf("%v: want %+v, got %+v (of %+v)", to, want, a, got.To)
		}
	}
	return ""
}
