package nft

import (
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Round-robin needs objects of the service port's own, as session affinity does: the kernel
// counts turns in a rule ("numgen inc"), and service ports that shared a rule would take turns
// with one another. A program that calls two of them alternately would always meet the same
// endpoint of each.
//
//	map   round-robin-NAME  slot : endpoint
//	chain round-robin-NAME  chooses the next slot
//
// These are for the Cluster endpoints; local-round-robin-NAME is for the Local ones. All
// frontends of the service port lead to them and share the turns. Where the list depends on the
// client, external-round-robin-NAME decides. A change of the number of endpoints rewrites the
// chain, which begins with the first slot again; an endpoint that replaces another one does not.
//
// The map could not be the one that all service ports share: for each new chain that looks into
// a map, the kernel walks all of it, and the list of the rules that look into it (nf_tables_bind_set).
// A map of its own costs a walk over the list of all sets, some five times (nft_set_lookup), so the
// time to program n of them grows with the square of n: see BenchmarkRoundRobin in nft/kernel.
var turnsOf = [...]string{model.Cluster: "round-robin-", model.Local: "local-round-robin-"}

const externalTurns = "external-round-robin-"

// turns are what a service port needs for round-robin.
type turns struct {
	sp       *model.ServicePort
	name     string
	has      [len(model.TrafficPolicies)]bool // lists to which frontends lead
	external bool                             // for some frontend, the list depends on the client
}

// turnsFor returns nil for service ports without round-robin, and for those whose lists have one
// endpoint at most: they share chains with others.
func turnsFor(sp *model.ServicePort) *turns {
	if sp == nil || sp.Algorithm != model.RoundRobin || len(sp.Endpoints) <= 1 {
		return nil
	}
	t := &turns{sp: sp, name: ownName(sp.Name)}
	most := 0
	for _, l := range model.TrafficPolicies {
		t.has[l] = slices.ContainsFunc(sp.Frontends, func(fe model.Frontend) bool { return fe.Uses(l) })
		if t.has[l] {
			most = max(most, sp.Count(l))
		}
	}
	if most <= 1 {
		return nil
	}
	t.external = slices.ContainsFunc(sp.Frontends, func(fe model.Frontend) bool { return fe.ShortCircuit })
	return t
}

// lists yields the lists that have a map and a chain, and the name of both.
func (t *turns) lists(yield func(model.TrafficPolicy, string) bool) {
	if t == nil {
		return
	}
	for _, l := range model.TrafficPolicies {
		if t.has[l] && !yield(l, turnsOf[l]+t.name) {
			return
		}
	}
}

func (t *turns) sets() []Set {
	var list []Set
	for _, name := range t.lists {
		list = append(list, DeclarationOf(name))
	}
	return list
}

func (t *turns) chains(s *model.Settings) []Chain {
	var list []Chain
	for l, name := range t.lists {
		list = append(list, t.chain(l, name))
	}
	if t != nil && t.external {
		others := Verdict{Kind: DropPacket}
		if t.has[model.Local] {
			others = Verdict{Goto, turnsOf[model.Local] + t.name}
		}
		list = append(list, Chain{
			Name:    externalTurns + t.name,
			Rules:   append(fromInside(s, Verdict{Goto, turnsOf[model.Cluster] + t.name}), Rule{others}),
			Comment: "the endpoints of " + t.sp.Name.String() + " in turn: all for this node and its pods, those on this node for others",
		})
	}
	return list
}

// chain chooses one endpoint of a list. The last two rules are for packets during a change, see
// choice.chain.
func (t *turns) chain(l model.TrafficPolicy, name string) Chain {
	c := Chain{Name: name, Comment: "the endpoints of " + t.sp.Name.String() + " in turn"}
	if l == model.Local {
		c.Comment += ", on this node"
	}
	if n := t.sp.Count(l); n > 0 {
		for _, slot := range []Expr{{NextSlot, uint32(n)}, {RandomSlot, 1}} {
			c.Rules = append(c.Rules, Rule{MatchProtocol{t.sp.Name.Protocol}, DNAT{Key{slot}, name}})
		}
	}
	c.Rules = append(c.Rules, Rule{Verdict{Kind: DropPacket}})
	return c
}

// verdict returns the verdict for connections to a frontend, or false if none of them gets an
// endpoint by turns.
func (t *turns) verdict(fe model.Frontend) (Verdict, bool) {
	switch {
	case t == nil:
	case fe.ShortCircuit:
		return Verdict{Goto, externalTurns + t.name}, true
	case fe.Action == model.Forward:
		return Verdict{Goto, turnsOf[fe.TrafficPolicy] + t.name}, true
	}
	return Verdict{}, false
}

// mapsOfTurns returns the maps from which a chain chooses by turns; of other chains, none.
func mapsOfTurns(chain string) []string {
	if name, ok := strings.CutPrefix(chain, externalTurns); ok {
		return []string{turnsOf[model.Cluster] + name, turnsOf[model.Local] + name}
	}
	if strings.HasPrefix(chain, turnsOf[model.Cluster]) || strings.HasPrefix(chain, turnsOf[model.Local]) {
		return []string{chain} // its map has the same name
	}
	return nil
}

// elements adds the slots. With delta, it leaves out those that the other version has as well.
func (t *turns) elements(r *Ruleset, delta *slotDelta, add func(set string, e Element)) {
	var others *turns
	if delta != nil {
		others = turnsFor(delta.other)
	}
	for l, name := range t.lists {
		d := delta
		if others == nil || !others.has[l] {
			d = nil
		}
		r.slotElements("", t.sp, l, d, func(e Element) { add(name, e) })
	}
}
