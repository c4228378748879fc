package iptables

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Part is a chain of a ruleset as far as it is about one service port.
type Part struct {
	Table, Name string
	Comment     string   // its purpose
	Lines       []string // rules, as iptables-save writes them, without the chain's name
	More        int      // further rules
}

// Excerpt returns the chains that connections to a service port meet, in the order in which they meet them,
// with at most so many rules of each. Of the chains of trees, it has the rules that lead to the service port;
// of groups of endpoints, the first one. Its cost does not depend on other service ports.
func (r *Ruleset) Excerpt(name model.ServicePortName, most int) []Part {
	sp, ok := r.snapshot.ServicePort(name)
	if !ok || r.lacks(sp) {
		return nil
	}
	p, e := r.port(sp), excerpt{own: map[tableChain]chain{}}
	for _, c := range append(p.chains(), r.sharedChains()...) {
		e.own[tableChain{c.table.String(), c.name}] = c
	}
	var nats, filters []placed
	for _, at := range p.entries() {
		if treeKinds[at.tree].table == nat {
			nats = append(nats, at)
		} else {
			filters = append(filters, at)
		}
	}
	// Node ports: the node's addresses lead there.
	for _, at := range nodeEntries(r.snapshot) {
		switch {
		case at.tree == natAddrs && toNodePorts(nats):
			nats = append(nats, at)
		case at.tree == filterAddrs && toNodePorts(filters):
			filters = append(filters, at)
		}
	}
	e.trees(r.Family, nats)
	e.add(tableChain{filter.String(), filterChain})
	e.trees(r.Family, filters)
	e.add(tableChain{nat.String(), postroutingChain})
	var hairpins []placed
	for _, end := range sp.Endpoints {
		if end.Hairpin {
			hairpins = append(hairpins, r.hairpinEntry(end.Addr.Addr()))
		}
	}
	e.trees(r.Family, hairpins)
	for i := range e.parts {
		part := &e.parts[i]
		part.Comment = purposeOf(*part)
		part.More = max(0, len(part.Lines)-most)
		part.Lines = part.Lines[:len(part.Lines)-part.More]
	}
	return e.parts
}

func toNodePorts(list []placed) bool {
	return slices.ContainsFunc(list, func(p placed) bool { return treeKinds[p.tree].match == "" })
}

// excerpt collects parts.
type excerpt struct {
	own   map[tableChain]chain // chains that are no tree's
	parts []Part
}

// trees adds the chains that lead to the ends of trees, root by root, and then those to which their rules lead.
func (e *excerpt) trees(f model.Family, ends []placed) {
	rules := map[place][]string{}
	add := func(at place, rule string) {
		if !slices.Contains(rules[at], rule) {
			rules[at] = append(rules[at], rule)
		}
	}
	for _, end := range ends {
		at := place{tree: end.tree}
		for _, digit := range end.digits[:end.depth] {
			next := at.child(digit)
			add(at, Join(next.leadsHere(f), "-g "+next.name()))
			at = next
		}
		add(end.place, end.rule)
	}
	first := len(e.parts)
	for _, at := range slices.SortedFunc(maps.Keys(rules), comparePlaces) {
		e.parts = append(e.parts, Part{Table: treeKinds[at.tree].table.String(), Name: at.name(), Lines: rules[at]})
	}
	for _, part := range e.parts[first:] {
		e.follow(part)
	}
}

// add adds a chain that is no tree's, and those to which it leads.
func (e *excerpt) add(at tableChain) {
	c, ok := e.own[at]
	if !ok || slices.ContainsFunc(e.parts, func(p Part) bool { return p.Table == at.table && p.Name == at.chain }) {
		return
	}
	part := Part{Table: at.table, Name: at.chain}
	for rule := range bytes.Lines(c.text) {
		part.Lines = append(part.Lines, strings.TrimPrefix(string(bytes.TrimSpace(rule)), "-A "+c.name+" "))
	}
	if len(part.Lines) == 0 {
		return
	}
	e.parts = append(e.parts, part)
	e.follow(part)
}

// follow adds the chains to which rules lead.
func (e *excerpt) follow(part Part) {
	groups := map[string]bool{}
	for _, rule := range part.Lines {
		to := targetOf(rule)
		if siblings, ok := groupOf(to); ok {
			if groups[siblings] {
				continue
			}
			groups[siblings] = true
		}
		e.add(tableChain{part.Table, to})
	}
}

// groupOf returns the beginning of the names of a group of endpoints and of its siblings.
func groupOf(name string) (string, bool) {
	const hashed = 16
	for _, r := range append(roleChoose[:], roleRecall[:]...) {
		if hash, ok := strings.CutPrefix(name, Prefix+string(r)); ok && len(hash) > hashed {
			return name[:len(name)-1], true
		}
	}
	return "", false
}

// targetOf returns the chain to which a rule leads, or the name of another target.
func targetOf(rule string) string {
	fields := strings.Fields(rule)
	for i, option := range fields {
		if (option == "-j" || option == "-g") && i+1 < len(fields) {
			return fields[i+1]
		}
	}
	return ""
}

// purposeOf returns the purpose of a chain.
func purposeOf(p Part) string {
	name := strings.TrimPrefix(p.Name, Prefix)
	switch {
	case p.Name == servicesChain && p.Table == nat.String():
		return "find the Service by the last digits of the address"
	case p.Name == servicesChain:
		return "connections without an endpoint"
	case p.Name == nodePortsChain:
		return "find the Service by the first digits of the node port"
	case p.Name == outsideChain:
		return "mark connections that are not from a pod"
	case p.Name == postroutingChain:
		return "after the endpoint was chosen"
	case p.Name == masqueradeChain:
		return "replace the client's address by the node's"
	case p.Name == hairpinChain:
		return "an endpoint that asks for itself"
	case p.Name == filterChain:
		return "new connections: those with an endpoint go on"
	case p.Name == rejectChain:
		return "refuse"
	case p.Name == dropChain:
		return "drop connections that are neither from a pod nor from this node"
	case strings.HasPrefix(name, string(roleExternal)):
		return "connections from outside: mark, and choose a list of endpoints"
	case strings.HasPrefix(name, string(roleFirewall)):
		return "check source ranges"
	case strings.HasPrefix(name, string(roleChoose[model.Cluster])):
		return "choose one of all endpoints"
	case strings.HasPrefix(name, string(roleChoose[model.Local])):
		return "choose one of the endpoints on this node"
	case strings.HasPrefix(name, string(roleRecall[model.Cluster])), strings.HasPrefix(name, string(roleRecall[model.Local])):
		return "find the client's endpoint of before"
	}
	return ""
}
