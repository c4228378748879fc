package iptables

import (
	"bytes"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Part is a chain of a ruleset as far as it is about one service port.
type Part struct {
	Table, Name string
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
	e := excerpt{rules: map[tableChain][]string{}, most: most}
	for _, c := range append(r.port(sp).chains(), r.sharedChains()...) {
		at := tableChain{c.table.String(), c.name}
		for rule := range bytes.Lines(c.text) {
			e.rules[at] = append(e.rules[at], strings.TrimPrefix(string(bytes.TrimSpace(rule)), "-A "+c.name+" "))
		}
	}
	ends := r.port(sp).entries()
	for _, node := range nodeEntries(r.snapshot) {
		// Only connections to node ports come by the node's addresses.
		ports := map[treeID]treeID{natAddrs: natPorts, filterAddrs: filterPorts}[node.tree]
		if slices.ContainsFunc(ends, func(end placed) bool { return end.tree == ports }) {
			ends = append(ends, node)
		}
	}
	for _, end := range sp.Endpoints {
		if end.Hairpin {
			ends = append(ends, r.hairpinEntry(end.Addr.Addr()))
		}
	}
	for _, end := range ends {
		e.lead(r.Family, end)
	}
	e.visit(tableChain{nat.String(), servicesChain})
	e.visit(tableChain{filter.String(), filterChain})
	e.visit(tableChain{nat.String(), postroutingChain})
	return e.parts
}

// excerpt collects parts.
type excerpt struct {
	rules map[tableChain][]string // of the chains that are not among the parts
	most  int
	parts []Part
}

// lead adds the rules that lead from the root of a tree to one of its ends.
func (e *excerpt) lead(f model.Family, end placed) {
	add := func(at place, rule string) {
		chain := tableChain{treeKinds[at.tree].table.String(), at.name()}
		if !slices.Contains(e.rules[chain], rule) {
			e.rules[chain] = append(e.rules[chain], rule)
		}
	}
	at := place{tree: end.tree}
	for _, digit := range end.digits[:end.depth] {
		next := at.child(digit)
		add(at, Join(next.leadsHere(f), "-g "+next.name()))
		at = next
	}
	add(end.place, end.rule)
}

// visit makes a chain a part, and then those to which its rules lead.
func (e *excerpt) visit(at tableChain) {
	rules := e.rules[at]
	if len(rules) == 0 {
		return
	}
	delete(e.rules, at)
	shown := min(len(rules), e.most)
	e.parts = append(e.parts, Part{at.table, at.chain, rules[:shown], len(rules) - shown})
	groups := map[string]bool{}
	for _, rule := range rules {
		to := targetOf(rule)
		if siblings, ok := groupOf(to); ok {
			if groups[siblings] {
				continue
			}
			groups[siblings] = true
		}
		e.visit(tableChain{at.table, to})
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
