package doctor

import (
	"fmt"
	"strings"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/others"
)

// tracking is the priority of connection tracking.
const tracking = -200

// showsIt ends the lines about chains: what they do with a connection, the kernel alone decides.
const showsIt = "vmapd trace ADDRESS:PORT/PROTO shows whether a connection meets it"

// checkFirewall names the base chains of other programs that may drop packets. Whether they drop those of Services
// depends on their rules, which nothing here follows.
func (f *Facts) firewall(l *found) {
	if !f.Host.NetAdmin {
		return // nothing could be read
	}
	for _, c := range f.Host.Chains {
		f.mayDrop(l, c)
	}
	for _, c := range f.Host.Chains {
		f.untracks(l, c)
		f.translates(l, c)
	}
	for _, family := range model.Families {
		f.untraceable(l, family)
	}
	for _, text := range f.Host.Unread {
		l.warn("look at the rules of other programs with nft list ruleset", "%s", text)
	}
	l.otherwise("no other program has a base chain with the policy drop")
}

// mayDrop is about a chain with the policy drop, or with rules that drop or reject. Rules are usual. A policy is a
// warning, since all packets of Services need a rule there that accepts them.
func (f *Facts) mayDrop(l *found, c Chain) {
	text := fmt.Sprintf("%s (hook %s, priority %d), which is not vmapd's, ", chainText(c.Place), c.Hook, c.Priority)
	if !c.Drops {
		if c.Rules > 0 {
			l.good("%shas %s that may drop or reject packets, which is usual; only %s",
				text, report.Plural(c.Rules, "rule"), showsIt)
		}
		return
	}
	text += "may drop connections to Services: its policy is drop"
	if c.Rules > 0 {
		text += fmt.Sprintf(", and %d of its rules may drop or reject packets", c.Rules)
	}
	if !f.servicesPass(c.Hook) {
		l.good("%s; only %s", text, showsIt)
		return
	}
	packets := "packets of Services"
	if c.Hook == others.Forward {
		packets = "forwarded packets from and to the ranges of pods"
	}
	l.warn(fmt.Sprintf("%s; if it is dropped there, accept %s in that chain", showsIt, packets), "%s", text)
}

// servicesPass reports whether packets of each Service pass a hook. The others pass those of some, such as the hook
// input for an endpoint on the node itself.
func (f *Facts) servicesPass(h others.Hook) bool {
	switch h {
	case others.Input:
		return f.Wants.Backend == "ipvs" || f.Wants.Backend == userspace
	case others.Forward:
		return f.Wants.Backend != userspace
	case others.Prerouting, others.Output, others.Postrouting:
	}
	return true
}

// untracks is about rules that keep packets from being tracked. IPVS and userspace work without tracking.
func (f *Facts) untracks(l *found, c Chain) {
	if len(c.Untracks) == 0 || c.Priority > tracking || f.Wants.Backend == "ipvs" || f.Wants.Backend == userspace {
		return
	}
	first, also := c.Untracks[0], ""
	if n := len(c.Untracks); n > 1 {
		also = fmt.Sprintf(", one of %d such rules at the hook %s", n, c.Hook)
	}
	l.warn(showsIt+"; delete it, unless NodeLocal DNSCache made it and runs on this node",
		"%s, rule %d, which is not vmapd's, keeps packets from being tracked (NOTRACK)%s: "+
			"a connection to a Service that meets it reaches no endpoint, unless a process of this node has the "+
			"address; "+
			"an answer that meets it keeps the endpoint's address", chainText(first.Place), first.Position, also)
}

// translates is about rules that replace a destination by a Service's address.
func (f *Facts) translates(l *found, c Chain) {
	if f.Daemon == nil || f.Daemon.IsClusterIP == nil {
		return
	}
	for _, rule := range c.Translates {
		if f.Daemon.IsClusterIP(rule.To) {
			l.warn("let the rule translate to an endpoint, or clients connect to the Service's address",
				"%s, rule %d, which is not vmapd's, translates connections to %v, the address of a Service: "+
					"the kernel translates once, so they leave the node to that address",
				chainText(rule.Place), rule.Position, rule.To)
		}
	}
}

// untraceable is about tables of iptables-legacy, which are not read. With the backends iptables and ipvs, they may be
// vmapd's own.
func (f *Facts) untraceable(l *found, family model.Family) {
	tables := f.Host.LegacyTables[family]
	if len(tables) == 0 {
		return
	}
	program := [...]string{model.IPv4: "iptables-legacy", model.IPv6: "ip6tables-legacy"}[family]
	text := fmt.Sprintf("%s has the tables %s: their rules may drop connections to Services, "+
		"and the kernel cannot trace them", program, strings.Join(tables, ", "))
	list := program + "-save lists them, and " + program + " -t TABLE -L -v -n counts packets"
	if b := f.Wants.Backend; b == "iptables" || b == "ipvs" {
		l.good("%s; %s", text, list)
	} else {
		l.warn(list, "%s", text)
	}
}

func chainText(p others.Place) string {
	return fmt.Sprintf("table %s %s, chain %s", p.Family, p.Table, p.Chain)
}
