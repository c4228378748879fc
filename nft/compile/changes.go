package compile

import (
	"iter"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// Unit is a part of a ruleset that is compiled on its own: a service port, or what all service ports share.
type Unit struct {
	Port     *model.ServicePort // nil: what all share
	Sets     []nft.Set
	Chains   []nft.Chain
	Elements ElementsOf
}

// ElementsOf calls add for each element, with the name of its set.
type ElementsOf func(add func(set string, e nft.Element))

// Change is a unit in two rulesets. What stays in it may be left out of both.
type Change struct {
	Old, New Unit
	Purge    []Purge
}

// Changes yields what differs between an earlier ruleset and this one. The cost depends on the difference, not on their
// size, unless settings differ. Both have the same options.
func (r *Ruleset) Changes(have *Ruleset) iter.Seq[Change] {
	return func(yield func(Change) bool) {
		if !yield(r.sharedChange(have)) {
			return
		}
		for old, now := range r.portsSince(have) {
			purges := purge(old, now, false)
			before, after := r.versions(have, old, now)
			if !yield(Change{have.unit(before), r.unit(after), purges}) {
				return
			}
		}
	}
}

// portsSince yields the service ports that an earlier ruleset had, and this one has, where one of them may have other
// elements.
func (r *Ruleset) portsSince(have *Ruleset) iter.Seq2[*model.ServicePort, *model.ServicePort] {
	return func(yield func(old, now *model.ServicePort) bool) {
		for c := range r.snapshot.ServicePortChanges(have.snapshot) {
			if !yield(c.Old, c.New) {
				return
			}
		}
		if r.snapshot.Settings == have.snapshot.Settings {
			return
		}
		for sp := range r.snapshot.ServicePorts() {
			if old, _ := have.snapshot.ServicePort(sp.Name); old == sp && !yield(sp, sp) {
				return
			}
		}
	}
}

// sharedChange is the change in what all service ports share.
func (r *Ruleset) sharedChange(have *Ruleset) Change {
	var c Change
	if len(have.Chains) != len(r.Chains) || &have.Chains[0] != &r.Chains[0] {
		c.Old.Chains, c.New.Chains = have.Chains, r.Chains
	}
	c.Old.Elements = func(add func(set string, e nft.Element)) { have.sharedSince(r, add) }
	c.New.Elements = func(add func(set string, e nft.Element)) { r.sharedSince(have, add) }
	return c
}

// sharedSince adds the elements that no single service port determines, and that another ruleset lacks.
func (r *Ruleset) sharedSince(other *Ruleset, add func(set string, e nft.Element)) {
	if r.snapshot.Settings != other.snapshot.Settings {
		settingsElements(r.snapshot.Settings, add)
	}
	for c := range r.snapshot.ClusterIPChanges(other.snapshot) {
		if c.New.IsValid() {
			add(nft.ClusterIPs, addrElement(c.New))
		}
	}
	for c := range r.snapshot.HairpinChanges(other.snapshot) {
		if c.New.IsValid() {
			add(nft.Hairpin, hairpinElement(c.New))
		}
	}
	for c := range r.snapshot.ServiceEndpointChanges(other.snapshot) {
		if c.New.Addr.IsValid() {
			add(nft.ServiceEndpoints, endpointElement(c.New))
		}
	}
}

// Purges returns all maps of clients.
func (r *Ruleset) Purges() []Purge {
	var all []Purge
	for sp := range r.snapshot.ServicePorts() {
		all = append(all, purge(nil, sp, true)...)
	}
	return all
}
