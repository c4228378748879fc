package iptables

import (
	"strings"

	"github.com/vmapd/vmapd/model"
)

// DefaultMasqueradeMark is bit 14, as kube-proxy has it.
const DefaultMasqueradeMark = 1 << 14

// Options are what an administrator sets, or what the programs on the node can do. Between
// a Ruleset and the one compiled after it they may differ; then everything is written anew.
type Options struct {
	// MasqueradeMark are the bits of the packet mark that mean: replace the source address.
	// Nobody else must use them. 0 is DefaultMasqueradeMark.
	MasqueradeMark uint32
	// RandomFully lets MASQUERADE choose source ports at random. It needs iptables 1.6.2.
	RandomFully bool
	// AcceptForwarded lets all that was sent to an endpoint through the FORWARD chain, also
	// what keeps its source address: then a policy of DROP there stops no Service. Like
	// kube-proxy, we otherwise leave that to the network plugin, whose rules for network
	// policies may come behind ours and must not be passed over.
	AcceptForwarded bool
	// Comments say at the rules whose they are.
	Comments bool
}

func (o Options) mark() uint32 {
	if o.MasqueradeMark == 0 {
		return DefaultMasqueradeMark
	}
	return o.MasqueradeMark
}

// setMark is the target that sets the mark.
func (o Options) setMark() string { return SetMark(o.mark(), o.mark()) }

// clearMark is the target that clears a mark that is set.
func (o Options) clearMark() string { return SetMark(o.mark(), 0) }

func (o Options) isMarked() string { return Marked(o.mark(), o.mark()) }

// A Jump is a rule in a built-in chain by which packets come to ours. No batch has it: built-in
// chains belong to everybody, and whoever runs the programs must see to it that the jumps
// are there once, before the rules of others.
type Jump struct {
	Table string
	Chain string // built in
	Args  []string
}

// Jumps returns the jumps, in the order in which they should come into force: before a
// destination is chosen, what replaces sources; and what refuses last, because what has no
// destination yet may be another proxy's, from which this one takes over.
func Jumps() []Jump {
	isNew := strings.Fields(IsNew)
	to := func(table, builtin, chain string, match ...string) Jump {
		return Jump{table, builtin, append(match, "-m", "comment", "--comment", "Kubernetes Services, by vmapd", "-j", chain)}
	}
	return []Jump{
		to("nat", "POSTROUTING", postroutingChain),
		to("nat", "PREROUTING", servicesChain),
		to("nat", "OUTPUT", servicesChain),
		to("filter", "FORWARD", forwardChain),
		to("filter", "INPUT", filterChain, isNew...),
		to("filter", "OUTPUT", filterChain, isNew...),
	}
}

// String is the jump's rule as iptables-restore takes it.
func (j Jump) String() string {
	args := make([]string, len(j.Args))
	for i, a := range j.Args {
		if args[i] = a; strings.Contains(a, " ") {
			args[i] = `"` + a + `"`
		}
	}
	return "-I " + j.Chain + " 1 " + strings.Join(args, " ")
}

// Probe returns a text with all that the rules may need of the programs and the kernel, for
// iptables-restore --noflush --test.
func Probe(f model.Family) string {
	addr := "192.0.2.1"
	if f == model.IPv6 {
		addr = "[2001:db8::1]"
	}
	return "*filter\n:VMAPD-PROBE - [0:0]\n" +
		"-A VMAPD-PROBE -m conntrack --ctstate NEW -m addrtype --dst-type LOCAL -p tcp -j REJECT --reject-with tcp-reset\n" +
		"COMMIT\n*nat\n:VMAPD-PROBE - [0:0]\n" +
		"-A VMAPD-PROBE -m comment --comment probe -m mark --mark 0x4000/0x4000 -j MASQUERADE\n" +
		"-A VMAPD-PROBE -m statistic --mode random --probability 0.5 -p tcp -j DNAT --to-destination " + addr + ":80\n" +
		"-A VMAPD-PROBE -j MARK --set-xmark 0x4000/0x4000\n" +
		"COMMIT\n"
}
