package compile

import (
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// Part is a set or map, or a chain, of a ruleset as far as it is about one service port.
type Part struct {
	Name  string
	Chain bool     // else a set or a map
	Lines []string // elements or rules, as nft writes them
	More  int      // further elements
}

// Excerpt returns the sets, maps and chains that connections to a service port meet, in the order in which they
// meet them, with at most so many elements of each. Its cost does not depend on other service ports.
func (r *Ruleset) Excerpt(name model.ServicePortName, most int) []Part {
	sp, ok := r.snapshot.ServicePort(name)
	if !ok {
		return nil
	}
	sets := map[string][]nft.Element{}
	unit := r.unit(version{ServicePort: sp})
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
		p := Part{Name: set.Name, More: max(0, len(list)-most)}
		for _, e := range list {
			follow(e.Verdict)
		}
		for _, e := range list[:min(most, len(list))] {
			p.Lines = append(p.Lines, set.Text(r.Family, e))
		}
		parts = append(parts, p)
	}
	chains := slices.Concat(unit.Chains, r.Chains)
	for i := 0; i < len(led); i++ {
		at := slices.IndexFunc(chains, func(c nft.Chain) bool { return c.Name == led[i] })
		if at < 0 {
			continue
		}
		c := chains[at]
		p := Part{Name: c.Name, Chain: true}
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

// met are sets in the order in which connections meet them. Behind the first ones are a chain that chooses an endpoint,
// and its endpoints.
var met = [...]string{
	nft.FirewallIPs, nft.SourceRanges(model.SCTP), nft.SourceRanges(model.TCP), nft.SourceRanges(model.UDP),
	nft.ServiceCounters, nft.NodePortCounters, nft.AffinityIPs, nft.AffinityNodePorts,
	nft.ServiceIPs, nft.ServiceNodePorts,
	chosenFrom: "", nft.RememberIPs, nft.RememberNodePorts, nft.NodePortSourceNAT, nft.SourceNAT,
}

const chosenFrom = 11 // in met

// stage is the place of a part on a packet's path.
func (p Part) stage() int {
	switch i := slices.Index(met[:], p.Name); {
	case i >= 0:
		return i
	case p.Name == masqueradeChain, p.Name == masqueradeNode, strings.HasPrefix(p.Name, rememberOwn):
		return len(met)
	case p.Chain:
		return chosenFrom - 1
	}
	return chosenFrom
}
