package iptables

import (
	"cmp"
	"fmt"

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
}

func (o Options) mark() uint32 { return cmp.Or(o.MasqueradeMark, DefaultMasqueradeMark) }

// setMark is the target that sets the mark.
func (o Options) setMark() string { return SetMark(o.mark(), o.mark()) }

// A Jump is a rule in a built-in chain that leads to one of our chains. Built-in chains belong to everybody, so no
// batch contains jumps: [Saved.HookText] has those that are missing.
type Jump struct {
	Table string
	Chain string // built in
	Rule  string
	// Last: it goes behind other programs' rules, because our chain accepts packets that they may drop. Without it, the
	// jump is the first rule.
	Last bool
}

// Jumps returns the jumps in the order in which they should come into force: source NAT before DNAT. Refusing comes
// last, because a connection without DNAT may belong to another proxy that this one is about to replace.
func Jumps() []Jump {
	const comment = `-m comment --comment "Kubernetes Services, by vmapd" `
	return []Jump{
		{Table: "nat", Chain: "POSTROUTING", Rule: comment + "-j " + postroutingChain},
		{Table: "nat", Chain: "PREROUTING", Rule: comment + "-j " + servicesChain},
		{Table: "nat", Chain: "OUTPUT", Rule: comment + "-j " + servicesChain},
		{Table: "filter", Chain: "FORWARD", Rule: comment + "-j " + acceptChain, Last: true},
		{Table: "filter", Chain: "FORWARD", Rule: comment + "-j " + forwardChain},
		{Table: "filter", Chain: "INPUT", Rule: IsNew + " " + comment + "-j " + filterChain},
		{Table: "filter", Chain: "OUTPUT", Rule: IsNew + " " + comment + "-j " + filterChain},
	}
}

// String returns the jump's line for iptables-restore, for a chain without rules of other programs.
func (j Jump) String() string { return j.at(1) }

func (j Jump) at(place int) string { return fmt.Sprintf("-I %s %d %s\n", j.Chain, place, j.Rule) }

// Rules with the optional matches, for iptables-restore --noflush --test, see [Options.NoAffinity] and
// [Options.NoSCTP].
const (
	ProbeRecent = probe + "-m recent --update --seconds 1 --name VMAPD-PROBE --rsource -j ACCEPT\nCOMMIT\n"
	ProbeSCTP   = probe + "-p sctp -m sctp --dport 1 -j ACCEPT\nCOMMIT\n"
	probe       = "*nat\n:VMAPD-PROBE - [0:0]\n-A VMAPD-PROBE "
)

// Probe returns rules with every match and target that the backend depends on, for iptables-restore --noflush --test.
func Probe(f model.Family) string {
	addr := "192.0.2.1"
	if f == model.IPv6 {
		addr = "[2001:db8::1]"
	}
	return probe + "-m comment --comment probe -m mark --mark 0x4000/0x4000 -j MASQUERADE\n" +
		"-A VMAPD-PROBE -m statistic --mode random --probability 0.5 -p tcp -j DNAT --to-destination " + addr + ":80\n" +
		"-A VMAPD-PROBE -j MARK --set-xmark 0x4000/0x4000\n" +
		"COMMIT\n*filter\n:VMAPD-PROBE - [0:0]\n" +
		"-A VMAPD-PROBE -m conntrack --ctstate NEW -m addrtype --dst-type LOCAL -p tcp -j REJECT --reject-with tcp-reset\n" +
		"COMMIT\n"
}
