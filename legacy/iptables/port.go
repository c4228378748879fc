package iptables

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"

	"github.com/vmapd/vmapd/model"
)

// port is a service port being translated.
type port struct {
	*model.ServicePort
	r       *Ruleset
	hash    string
	comment string
	paths   []path
}

// path is a frontend without the fields that do not matter to its nat chains. Frontends of the same path share them.
type path struct{ model.Frontend }

func pathOf(fe model.Frontend) path {
	fe.VIP, fe.Kind, fe.Restricted = model.VIP{}, 0, false
	return path{fe}
}

func (r *Ruleset) port(sp *model.ServicePort) *port {
	p := &port{ServicePort: sp, r: r, hash: portHash(sp.Name), comment: commentOf(sp.Name)}
	for _, fe := range sp.Frontends {
		if w := pathOf(fe); !slices.Contains(p.paths, w) {
			p.paths = append(p.paths, w)
		}
	}
	// The cluster IP's path comes last: it has no such chains, and the names of the rest do not depend on it.
	slices.SortStableFunc(p.paths, func(a, b path) int { return cmp.Compare(b.SourceNAT, a.SourceNAT) })
	return p
}

// forwards reports whether any connection gets an endpoint.
func (w path) forwards() bool { return w.Action == model.Forward || w.ShortCircuit }

// direct reports whether all connections go to one list of endpoints, and the chain of that
// list decides whether they are masqueraded: so it is for cluster IPs.
func (w path) direct() bool {
	return w.Action == model.Forward && !w.ShortCircuit && w.SourceNAT == model.MasqueradeOutside
}

func (p *port) chain(t table, name string) chain {
	return chain{table: t, name: name, comment: p.comment}
}

func (p *port) name(r role) string { return Prefix + string(r) + p.hash }

// pathChain names a chain of one path. There is hardly ever a second one with that role.
func (p *port) pathChain(r role, w path) string {
	name := p.name(r)
	if i := slices.Index(p.paths, w); i > 0 {
		name += "-" + strconv.Itoa(i)
	}
	return name
}

// entry returns the chain to which a path's connections are sent.
func (p *port) entry(w path) string {
	if w.direct() {
		return p.name(roleChoose[w.TrafficPolicy])
	}
	return p.pathChain(roleExternal, w)
}

// rule joins a match and a target, with the comment between them.
func (p *port) rule(match, target string) string { return Join(match, p.comment, target) }

// natRule returns the rule of the nat table for a frontend. If no connection is forwarded, all
// are accepted without DNAT, so that the filter table sees the client's destination.
func (p *port) natRule(fe model.Frontend) string {
	w := pathOf(fe)
	switch {
	case !w.forwards():
		return p.rule(toVIP(fe.VIP), Accept)
	case fe.Restricted:
		return p.rule(toVIP(fe.VIP), "-g "+p.pathChain(roleFirewall, w))
	}
	return p.rule(toVIP(fe.VIP), "-g "+p.entry(w))
}

// filterRule returns the rule of the filter table for connections to a frontend that have no DNAT; "" if there is none.
func (p *port) filterRule(fe model.Frontend) string {
	w := pathOf(fe)
	if fe.Restricted {
		return p.rule(toVIP(fe.VIP), "-g "+p.pathChain(roleFirewall, w))
	}
	// An endpoint may be the very address and port that its clients ask for: then nothing is translated, and the filter
	// table takes it for a connection that got no endpoint.
	_, self := p.Find(netip.AddrPortFrom(fe.VIP.Addr, fe.VIP.Port))
	if target := p.refuse(w); self || target != Return {
		return p.rule(toVIP(fe.VIP), target)
	}
	return ""
}

// refuse returns the target for connections that have no DNAT.
func (p *port) refuse(w path) string {
	switch {
	case w.Action == model.Reject:
		return gotoReject
	case w.Action == model.Drop && w.ShortCircuit:
		return "-g " + dropChain
	case w.Action == model.Drop:
		return Drop
	}
	return Return
}

// entries returns a service port's rules at the ends of trees.
func (p *port) entries() []placed {
	var list []placed
	add := func(addrs, ports treeID, v model.VIP, rule string) {
		if rule == "" {
			return
		}
		e := entry{entryKey{v.Addr, aFrontend, v.Protocol, v.Port}, rule}
		if v.Addr.IsUnspecified() {
			list = append(list, placed{atPort(ports, v.Protocol, v.Port), e})
			return
		}
		list = append(list, placed{atAddr(addrs, v.Addr), e})
	}
	for _, fe := range p.Frontends {
		add(natAddrs, natPorts, fe.VIP, p.natRule(fe))
		add(filterAddrs, filterPorts, fe.VIP, p.filterRule(fe))
	}
	return list
}

// chains returns a service port's own chains.
func (p *port) chains() []chain {
	var list []chain
	for _, w := range p.paths {
		if w.forwards() && !w.direct() {
			list = append(list, p.externalChain(w))
		}
		list = append(list, p.firewallChains(w)...)
	}
	for _, l := range model.TrafficPolicies {
		if slices.ContainsFunc(p.paths, func(w path) bool { return w.Uses(l) }) {
			list = append(list, p.listChain(l))
		}
	}
	return list
}

// externalChain marks connections that are to be masqueraded, and sends all to a list of
// endpoints. The filter table refuses those that come to the end of the chain.
func (p *port) externalChain(w path) chain {
	c := p.chain(nat, p.pathChain(roleExternal, w))
	switch w.SourceNAT {
	case model.MasqueradeAlways:
		c.add("", p.r.options.setMark())
	case model.MasqueradeNode:
		c.add(FromNode, p.r.options.setMark())
	case model.MasqueradeOutside:
		c.add("", markOutside)
	}
	if w.ShortCircuit {
		all := "-g " + p.name(roleChoose[model.Cluster])
		for _, m := range FromPods(p.r.Pods) {
			if c.add(m, all); m == "" {
				return c
			}
		}
		c.add(FromNode, all)
	}
	if w.Action == model.Forward {
		c.add("", "-g "+p.name(roleChoose[w.TrafficPolicy]))
	}
	return c
}

// firewallChains returns the chains, one for each table, that check the source ranges of restricted frontends.
func (p *port) firewallChains(w path) []chain {
	restricted := slices.DeleteFunc(slices.Clone(p.Frontends), func(fe model.Frontend) bool {
		return !fe.Restricted || pathOf(fe) != w
	})
	if len(restricted) == 0 {
		return nil
	}
	var list []chain
	sources := p.allowed(restricted)
	if w.forwards() {
		c := p.chain(nat, p.pathChain(roleFirewall, w))
		for _, m := range sources {
			c.add(m, "-g "+p.entry(w))
		}
		list = append(list, c)
	}
	c := p.chain(filter, p.pathChain(roleFirewall, w))
	if target := p.refuse(w); target != Drop {
		for _, m := range sources {
			c.add(m, target)
		}
	}
	c.add("", Drop)
	return append(list, c)
}

// allowed returns the matches of allowed sources.
func (p *port) allowed(restricted []model.Frontend) []string {
	var list []string
	for _, r := range p.SourceRanges {
		list = append(list, InRange("-s ", r))
	}
	if p.NodeAllowed {
		// A process of this node, if the frontend's address is on an interface of it.
		for _, fe := range restricted {
			self := "-s " + host(fe.VIP.Addr) + " -d " + host(fe.VIP.Addr)
			if !slices.Contains(list, self) {
				list = append(list, self)
			}
		}
	}
	return list
}
