package iptables

import (
	"strings"

	"github.com/vmapd/vmapd/model"
)

// DefaultMasqueradeMark is bit 14, as kube-proxy has it.
const DefaultMasqueradeMark = 1 << 14

// Options are settings of an administrator, and abilities of the programs on the node. If they
// differ between a Ruleset and the one compiled after it, everything is written anew.
type Options struct {
	// MasqueradeMark are the bits of the packet mark that request masquerading. No other
	// program may use them. 0 is DefaultMasqueradeMark.
	MasqueradeMark uint32
	// RandomFully lets MASQUERADE choose source ports at random. It needs iptables 1.6.2.
	RandomFully bool
	// NoAffinity and NoSCTP are a kernel without the matches recent and sctp: clients do not come back to their
	// endpoints, and service ports of SCTP have no rules.
	NoAffinity, NoSCTP bool
	// Comments adds comments to rules that name the service port.
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

// A Jump is a rule in a built-in chain that leads to one of our chains. Built-in chains belong to everybody, so no
// batch contains jumps: [Saved.HookText] puts each of them, once, before other programs' rules.
type Jump struct {
	Table string
	Chain string // built in
	Rule  string
}

// Jumps returns the jumps in the order in which they should come into force: source NAT before DNAT. Refusing comes
// last, because a connection without DNAT may belong to another proxy that this one is about to replace.
func Jumps() []Jump {
	const comment = `-m comment --comment "Kubernetes Services, by vmapd" `
	return []Jump{
		{"nat", "POSTROUTING", comment + "-j " + postroutingChain},
		{"nat", "PREROUTING", comment + "-j " + servicesChain},
		{"nat", "OUTPUT", comment + "-j " + servicesChain},
		{"filter", "FORWARD", comment + "-j " + forwardChain},
		{"filter", "INPUT", IsNew + " " + comment + "-j " + filterChain},
		{"filter", "OUTPUT", IsNew + " " + comment + "-j " + filterChain},
	}
}

// String returns the jump's line for iptables-restore.
func (j Jump) String() string { return "-I " + j.Chain + " 1 " + j.Rule }

// Args returns the jump's rule as arguments of the program.
func (j Jump) Args() (args []string) {
	for i, part := range strings.Split(j.Rule, `"`) {
		if quoted := i%2 == 1; quoted {
			args = append(args, part)
		} else {
			args = append(args, strings.Fields(part)...)
		}
	}
	return args
}

// The optional matches, see [Options.NoAffinity] and [Options.NoSCTP].
const (
	MatchRecent = "-m recent --update --seconds 1 --name VMAPD-PROBE --rsource"
	MatchSCTP   = "-p sctp -m sctp --dport 1"
)

// ProbeMatch returns a rule with a match, for iptables-restore --noflush --test.
func ProbeMatch(match string) string {
	return "*nat\n:VMAPD-PROBE - [0:0]\n-A VMAPD-PROBE " + match + " -j ACCEPT\nCOMMIT\n"
}

// Probe returns rules with every match and target that the backend depends on, for iptables-restore --noflush --test.
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
