package doctor

import (
	"fmt"
	"strings"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/others"
)

// tracking is the priority of connection tracking.
const tracking = -200

// showsIt ends the lines about chains: what they do with a connection, the kernel alone decides.
const showsIt = "vmapd trace ADDRESS:PORT/PROTO shows whether a connection meets it"

// checkFirewall names the base chains of other programs that may drop packets. Whether they drop those of Services
// depends on their rules, which nothing here follows.
func checkFirewall(f Facts) (lines []Line) {
	if !f.Host.NetAdmin {
		return nil // nothing could be read
	}
	for _, c := range f.Host.Chains {
		lines = append(lines, f.mayDrop(c)...)
	}
	for _, c := range f.Host.Chains {
		lines = append(lines, f.untracks(c)...)
	}
	for _, family := range model.Families {
		lines = append(lines, f.untraceable(family)...)
	}
	for _, text := range f.Host.Unread {
		lines = append(lines, bad(Warn, text, "look at the rules of other programs with nft list ruleset")...)
	}
	if len(lines) == 0 {
		return good("no other program has a base chain whose policy is drop")
	}
	return lines
}

// mayDrop is about a chain with the policy drop, or with rules that drop or reject. Rules are usual. A policy is a
// warning, since all packets of Services need a rule there that accepts them.
func (f Facts) mayDrop(c Chain) []Line {
	var what []string
	if c.Drops {
		what = append(what, "its policy is drop")
	}
	if c.Rules > 0 {
		what = append(what, fmt.Sprintf("%d of its rules may drop or reject packets", c.Rules))
	}
	if len(what) == 0 {
		return nil
	}
	text := fmt.Sprintf("%s (hook %s, priority %d), which is not vmapd's, may drop connections to Services: %s",
		chainText(c.Place), c.Hook, c.Priority, strings.Join(what, ", and "))
	if !c.Drops || !f.servicesPass(c.Hook) {
		return good(text + "; " + showsIt)
	}
	remedy := "; if it is dropped there, accept packets of Services in that chain"
	if c.Hook == others.Forward {
		remedy = "; if it is dropped there, accept forwarded packets from and to the ranges of pods in that chain"
	}
	return bad(Warn, text, showsIt+remedy)
}

// servicesPass reports whether packets of each Service pass a hook. The others pass those of some, such as the hook
// input for an endpoint on the node itself.
func (f Facts) servicesPass(h others.Hook) bool {
	switch h {
	case others.Input:
		return f.Wants.Backend == "ipvs" || f.Wants.Backend == "userspace"
	case others.Forward:
		return f.Wants.Backend != "userspace"
	case others.Prerouting, others.Output, others.Postrouting:
	}
	return true
}

// untracks is about rules that keep packets from being tracked. IPVS and userspace work without tracking.
func (f Facts) untracks(c Chain) []Line {
	if len(c.Untracks) == 0 || c.Priority > tracking || f.Wants.Backend == "ipvs" || f.Wants.Backend == "userspace" {
		return nil
	}
	first, also := c.Untracks[0], ""
	if n := len(c.Untracks); n > 1 {
		also = fmt.Sprintf(", one of %d such rules at the hook %s", n, c.Hook)
	}
	text := fmt.Sprintf("%s, rule %d, which is not vmapd's, keeps packets from being tracked (NOTRACK)%s: "+
		"a connection to a Service that meets it reaches no endpoint, unless a process of this node has the address; "+
		"an answer that meets it keeps the endpoint's address",
		chainText(first.Place), first.Position, also)
	return bad(Warn, text, showsIt+"; delete it, unless NodeLocal DNSCache made it and runs on this node")
}

// untraceable is about tables of iptables-legacy, which are not read. With the backends iptables and ipvs, they may be
// vmapd's own.
func (f Facts) untraceable(family model.Family) []Line {
	tables := f.Host.LegacyTables[family]
	if len(tables) == 0 {
		return nil
	}
	program := [...]string{model.IPv4: "iptables-legacy", model.IPv6: "ip6tables-legacy"}[family]
	text := fmt.Sprintf("%s has the tables %s: their rules may drop connections to Services, "+
		"and the kernel cannot trace them", program, strings.Join(tables, ", "))
	list := program + "-save lists them, and " + program + " -t TABLE -L -v -n counts packets"
	if b := f.Wants.Backend; b == "iptables" || b == "ipvs" {
		return good(text + "; " + list)
	}
	return bad(Warn, text, list)
}

func chainText(p others.Place) string {
	return fmt.Sprintf("table %s %s, chain %s", p.Family, p.Table, p.Chain)
}
