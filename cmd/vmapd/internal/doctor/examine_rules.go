package doctor

import (
	"cmp"
	"slices"

	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/others"
)

// readChains adds the base chains and the tables of iptables-legacy that other programs have. With rules, their rules
// are read, too, which takes memory where they are many.
func readChains(h *Host, rules bool) {
	unread := func(err error) {
		if err != nil {
			h.Unread = append(h.Unread, err.Error())
		}
	}
	set, err := others.ReadRuleset()
	if err != nil {
		unread(err)
		set = &others.Ruleset{}
	}
	defer set.Close()
	for _, b := range set.Bases {
		if b.Place.IsVmapds() || b.Hook == others.Postrouting || b.Place.Family == "bridge" {
			continue
		}
		c := Chain{Base: b}
		if rules {
			lines, err := set.Reached(b, others.Place.IsVmapds)
			unread(err)
			addRules(&c, lines)
		}
		h.Chains = append(h.Chains, c)
	}
	for _, f := range model.Families {
		names, err := host.LegacyTables(f)
		unread(err)
		h.LegacyTables[f] = slices.DeleteFunc(names, func(table string) bool { return table == "nat" })
	}
}

func addRules(c *Chain, lines []others.Line) {
	for _, l := range lines {
		if l.Drops || l.Rejects {
			c.Rules++
		}
		if l.Untracks {
			c.Untracks = append(c.Untracks, l)
		}
	}
	slices.SortFunc(c.Untracks, func(a, b others.Line) int {
		return cmp.Or(cmp.Compare(a.Place.Chain, b.Place.Chain), cmp.Compare(a.Position, b.Position))
	})
}
