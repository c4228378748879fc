package compile

import (
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// Part is a set or map, or a chain, of a ruleset as far as it is about one service port.
type Part struct {
	Name    string
	Chain   bool     // else a set or a map
	Comment string   // its purpose
	Lines   []string // elements or rules, as nft writes them
	More    int      // further elements
}

// Excerpt returns the sets, maps and chains that connections to a service port meet, in the order in which they
// meet them, with at most so many elements of each. Its cost does not depend on other service ports.
func (r *Ruleset) Excerpt(name model.ServicePortName, most int) []Part {
	sp, ok := r.snapshot.ServicePort(name)
	if !ok {
		return nil
	}
	sets := map[string][]nft.Element{}
	unit := r.unit(sp, nil)
	unit.Elements(func(set string, e nft.Element) { sets[set] = append(sets[set], e) })
	var parts []Part
	var led []string // names of chains, in the order in which verdicts lead to them
	follow := func(v nft.Verdict) {
		if (v.Kind == nft.Goto || v.Kind == nft.Jump) && !slices.Contains(led, v.Chain) {
			led = append(led, v.Chain)
		}
	}
	for _, set := range slices.Concat(r.Sets, unit.Sets) {
		list := sets[set.Name]
		if len(list) == 0 {
			continue
		}
		slices.SortFunc(list, func(a, b nft.Element) int { return set.CompareKeys(a.Key, b.Key) })
		p := Part{Name: set.Name, Comment: set.Comment, More: max(0, len(list)-most)}
		for _, e := range list {
			follow(e.Verdict)
		}
		for _, e := range list[:min(most, len(list))] {
			p.Lines = append(p.Lines, set.Text(r.Family, e))
		}
		parts = append(parts, p)
	}
	for i := 0; i < len(led); i++ {
		c, ok := find(led[i], unit.Chains, r.Chains)
		if !ok {
			continue
		}
		p := Part{Name: c.Name, Chain: true, Comment: c.Comment}
		for _, rule := range c.Rules {
			p.Lines = append(p.Lines, rule.Text(r.Family))
			for _, s := range rule {
				if v, ok := s.(nft.Verdict); ok {
					follow(v)
				}
			}
		}
		parts = append(parts, p)
	}
	slices.SortStableFunc(parts, func(a, b Part) int { return a.stage() - b.stage() })
	return parts
}

func find(name string, lists ...[]nft.Chain) (nft.Chain, bool) {
	for _, list := range lists {
		if i := slices.IndexFunc(list, func(c nft.Chain) bool { return c.Name == name }); i >= 0 {
			return list[i], true
		}
	}
	return nft.Chain{}, false
}

// stage is the place of a part on a packet's way.
func (p Part) stage() int {
	order := []func(string) bool{
		func(n string) bool { return n == nft.FirewallIPs || strings.HasPrefix(n, "source-ranges-") },
		func(n string) bool { return n == nft.ServiceCounters || n == nft.NodePortCounters },
		func(n string) bool { return n == nft.AffinityIPs || n == nft.AffinityNodePorts },
		func(n string) bool { return n == nft.ServiceIPs || n == nft.ServiceNodePorts },
		func(string) bool { return p.Chain && !p.after() },
		func(string) bool { return !p.after() },
		func(n string) bool { return n == nft.RememberIPs || n == nft.RememberNodePorts },
		func(n string) bool { return n == nft.SourceNAT || n == nft.NodePortSourceNAT },
	}
	return slices.IndexFunc(append(order, func(string) bool { return true }), func(is func(string) bool) bool { return is(p.Name) })
}

// after reports whether packets meet a part after an endpoint was chosen.
func (p Part) after() bool {
	switch p.Name {
	case nft.RememberIPs, nft.RememberNodePorts, nft.SourceNAT, nft.NodePortSourceNAT, masqueradeChain, masqueradeNode:
		return true
	}
	return strings.HasPrefix(p.Name, rememberOwn)
}
