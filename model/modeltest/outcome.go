package modeltest

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/vmapd/vmapd/model"
)

// Configs are those that random tests run with, in turn.
var Configs = []model.Config{
	Config(),
	{NodeName: NodeName, NodePortAddresses: model.NodePortAddresses{All: true}, MasqueradeAll: true},
	{
		NodeName: NodeName, NodePortAddresses: model.NodePortAddresses{Primary: true},
		LocalPods: model.LocalPods{ClusterCIDRs: prefixes("10.0.0.0/8", "fd00:10::/64")},
	},
	{
		NodeName: NodeName, NodePortAddresses: model.NodePortAddresses{Primary: true, All: true},
		LocalPods: model.LocalPods{Mode: model.ByNodeCIDR}, Algorithm: model.RoundRobin, DropInvalid: true,
	},
	{
		NodeName: NodeName, NodePortAddresses: model.NodePortAddresses{Primary: true},
		LocalPods: model.LocalPods{Mode: model.ByBridge, Interface: PodBridge}, Algorithm: model.SourceHash,
	},
	{
		NodeName: NodeName, NodePortAddresses: model.NodePortAddresses{Primary: true},
		LocalPods: model.LocalPods{Mode: model.ByInterfacePrefix, Interface: "cali"}, DropInvalid: true,
	},
	{
		NodeName: NodeName, NodePortAddresses: model.NodePortAddresses{Primary: true},
		LocalPods: model.LocalPods{ClusterCIDRs: prefixes("0.0.0.0/0", "::/0")},
	},
}

func prefixes(list ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, s := range list {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

// Corpus is what fuzz targets that read Bytes begin with.
func Corpus() [][]byte {
	var all [][]byte
	for seed := range uint64(10) {
		data := make([]byte, 600)
		r := rand.New(Seed(seed))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		all = append(all, data)
	}
	return all
}

// ClientPort is the port that random connections come from.
const ClientPort = 40000

// Outcome is what becomes of a connection: what a decision means, or what a simulator or a
// kernel did.
type Outcome struct {
	Fate     model.Fate // Forwarded also for what is NotOurs
	TCPReset bool       // Rejected only: by a reset rather than by an ICMP error
	// To has, for Forwarded, all endpoints, or the destination itself.
	To map[netip.AddrPort]Arrival
}

// Arrival is how a connection arrives at one of its endpoints.
type Arrival struct {
	Share      float64 // of all connections
	Masquerade bool    // with the node's address as its source
}

// Expected returns the outcome that a decision means.
func Expected(d model.Decision) Outcome {
	o := Outcome{Fate: d.Fate}
	switch d.Fate {
	case model.Rejected:
		o.TCPReset = d.Protocol == model.TCP
	case model.NotOurs:
		o.Fate = model.Forwarded
		o.To = map[netip.AddrPort]Arrival{d.Dest: {Share: 1}}
	case model.Forwarded:
		o.To = map[netip.AddrPort]Arrival{}
		for _, target := range d.Targets {
			o.To[target.Addr] = Arrival{1 / float64(len(d.Targets)), target.SNAT.Masquerade()}
		}
	case model.Dropped:
	}
	return o
}

// Disagrees says what is different about what was done, or "". Shares may differ a
// little: iptables knows probabilities to 31 bits.
func (o Outcome) Disagrees(done Outcome) string {
	const tolerance = 1e-7
	if o.Fate != done.Fate || o.TCPReset != done.TCPReset || len(o.To) != len(done.To) {
		return fmt.Sprintf("decided %+v, done %+v", o, done)
	}
	for to, want := range o.To {
		got, ok := done.To[to]
		if off := got.Share - want.Share; !ok || got.Masquerade != want.Masquerade || off > tolerance || off < -tolerance {
			return fmt.Sprintf("%v: decided %+v, done %+v (of %+v)", to, want, got, done)
		}
	}
	return ""
}
