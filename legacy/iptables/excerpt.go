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
	e.parts = append(e.parts, Part{at.table, at.chain, purposeOf(at), rules[:shown], len(rules) - shown})
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

// purposes of chains, by their names; of service ports' chains, by the beginnings of their names.
var purposes = map[string]string{
	servicesChain:    "find the Service by the last digits of the address",
	nodePortsChain:   "find the Service by the first digits of the node port",
	outsideChain:     "mark connections that are not from a pod",
	postroutingChain: "after the endpoint was chosen",
	masqueradeChain:  "replace the client's address by the node's",
	hairpinChain:     "an endpoint that asks for itself",
	filterChain:      "new connections: those with an endpoint go on",
	rejectChain:      "refuse",
	dropChain:        "drop connections that are neither from a pod nor from this node",

	Prefix + string(roleExternal):              "connections from outside: mark, and choose a list of endpoints",
	Prefix + string(roleFirewall):              "check source ranges",
	Prefix + string(roleChoose[model.Cluster]): "choose one of all endpoints",
	Prefix + string(roleChoose[model.Local]):   "choose one of the endpoints on this node",
	Prefix + string(roleRecall[model.Cluster]): "find the client's endpoint of before",
	Prefix + string(roleRecall[model.Local]):   "find the client's endpoint of before",
}

// purposeOf returns the purpose of a chain.
func purposeOf(at tableChain) string {
	if at == (tableChain{filter.String(), servicesChain}) {
		return "connections without an endpoint"
	}
	if purpose, ok := purposes[at.chain]; ok {
		return purpose
	}
	role, _, _ := strings.Cut(strings.TrimPrefix(at.chain, Prefix), "-")
	return purposes[Prefix+role+"-"]
}
