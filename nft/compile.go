package nft

import (
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Compile translates a snapshot. It needs to know what is there already, because of
// the slots: an endpoint that stays keeps its slot, so that a change costs a handful
// of elements however many endpoints there are. before is the Ruleset compiled from
// an earlier snapshot, a Table read from the kernel, or nil.
//
// After an earlier Ruleset the cost follows what changed between the snapshots.
func Compile(before Slots, s *model.FamilySnapshot) *Ruleset { return Options{}.Compile(before, s) }

// Compile is the function Compile, with these options. An earlier Ruleset may have been
// compiled with others.
func (o Options) Compile(before Slots, s *model.FamilySnapshot) *Ruleset {
	r := &Ruleset{Family: s.Family, snapshot: s, Options: o}
	old, ok := before.(*Ruleset)
	if !ok {
		r.compileAll(before)
		return r
	}
	r.Sets, r.orders, r.chosen = old.Sets, old.orders, old.chosen
	if o != old.Options {
		r.Sets = o.LayoutSets()
	}
	edit := old.orders.Edit(model.ServicePortKeys)
	grown := false
	for c := range s.ServicePortChanges(old.snapshot) {
		if c.New == nil {
			edit.Delete(c.Old.Name)
			continue
		}
		r.arrange(edit, old, c.New)
		grown = r.chosen.add(c.New) || grown
	}
	r.orders = edit.Done()
	if r.Chains = old.Chains; grown || s.Settings != old.snapshot.Settings || o != old.Options {
		r.Chains = o.layoutChains(s.Settings, r.chosen)
	}
	return r
}

func (r *Ruleset) compileAll(before Slots) {
	r.Sets = r.Options.LayoutSets()
	edit := r.orders.Edit(model.ServicePortKeys)
	for sp := range r.snapshot.ServicePorts() {
		if before != nil {
			r.arrange(edit, before, sp)
		}
		r.chosen.add(sp)
	}
	r.orders = edit.Done()
	r.Chains = r.Options.layoutChains(r.snapshot.Settings, r.chosen)
}

// AllSets returns the declarations of all sets and maps, sorted by name.
func (r *Ruleset) AllSets() []Set {
	all := slices.Clone(r.Sets)
	for sp := range r.snapshot.ServicePorts() {
		all = append(all, affinityFor(sp).sets()...)
	}
	slices.SortFunc(all, func(a, b Set) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// AllChains returns all chains, sorted by name.
func (r *Ruleset) AllChains() []Chain {
	all := slices.Clone(r.Chains)
	for sp := range r.snapshot.ServicePorts() {
		all = append(all, affinityFor(sp).chains(r.snapshot.Settings)...)
	}
	slices.SortFunc(all, func(a, b Chain) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Elements yields every element with the name of its set.
func (r *Ruleset) Elements() iter.Seq2[string, Element] {
	return func(yield func(string, Element) bool) {
		for set, list := range r.all() {
			for _, op := range list {
				if !yield(set, op.Element) {
					return
				}
			}
		}
	}
}

func settingsElements(s *model.Settings) iter.Seq2[string, Element] {
	return func(yield func(string, Element) bool) {
		if s == nil {
			return
		}
		for _, a := range s.NodePortAddrs {
			if !yield(NodePortIPs, addrElement(a)) {
				return
			}
		}
		for _, p := range s.ServiceCIDRs {
			if !yield(ServiceCIDRs, prefixElement(p)) {
				return
			}
		}
	}
}

func addrElement(a netip.Addr) Element { return Element{Key: string(AppendAddr(nil, a))} }

func hairpinElement(a netip.Addr) Element {
	return Element{Key: string(AppendAddr(AppendAddr(nil, a), a))}
}

func endpointElement(v model.VIP) Element { return Element{Key: scopeAddr.key(v)} }

// portElements yields what one service port contributes. With other, it leaves out endpoints
// that the other ruleset has in the same slots.
func (r *Ruleset) portElements(sp *model.ServicePort, other *slotDelta) iter.Seq2[string, Element] {
	return func(yield func(string, Element) bool) {
		if sp == nil {
			return
		}
		affinity := affinityFor(sp)
		for _, fe := range sp.Frontends {
			for set, e := range r.frontendElements(sp, fe, affinity, other) {
				if !yield(set, e) {
					return
				}
			}
		}
		for set, e := range r.Options.counterElements(sp) {
			if !yield(set, e) {
				return
			}
		}
		affinity.elements()(yield)
	}
}

// frontendElements yields what one frontend contributes.
func (r *Ruleset) frontendElements(sp *model.ServicePort, fe model.Frontend, a *affinity, other *slotDelta) iter.Seq2[string, Element] {
	return func(yield func(string, Element) bool) {
		of := scopeOf(fe.Kind)
		key := of.key(fe.VIP)
		more := yield(of.set(roleDispatch), Element{Key: key, Verdict: verdict(sp, fe), Comment: elementComment(sp.Name)})
		if fe.Restricted {
			more = more && yield(FirewallIPs, Element{Key: key})
			for _, p := range sp.Allowed(fe) {
				to := string(AppendPort(AppendAddr(nil, fe.VIP.Addr), fe.VIP.Port))
				more = more && yield(SourceRanges(fe.VIP.Protocol), rangeElement(to, p))
			}
		}
		if fe.Action != model.Forward && !fe.ShortCircuit {
			return
		}
		for _, l := range model.TrafficPolicies {
			if !fe.Uses(l) {
				continue
			}
			for e := range r.slotElements(key, sp, fe, l, other) {
				if more = more && yield(of.set(endpointsRole(l)), e); !more {
					return
				}
			}
		}
		switch fe.SourceNAT {
		case model.MasqueradeAlways:
			more = more && yield(of.set(roleSourceNAT), Element{Key: key, Verdict: Verdict{Goto, masqueradeChain}})
		case model.MasqueradeNode:
			more = more && yield(of.set(roleSourceNAT), Element{Key: key, Verdict: Verdict{Goto, masqueradeNode}})
		case model.MasqueradeOutside:
		}
		if a != nil && more {
			back, remember := a.verdicts(fe)
			_ = yield(of.set(roleAffinity), Element{Key: key, Verdict: back}) &&
				yield(of.set(roleRemember), Element{Key: key, Verdict: remember})
		}
	}
}

// maxComment is the longest comment that nft takes (libnftnl: NFTNL_UDATA_COMMENT_MAXLEN
// with its final zero). Only names of maximal length are longer.
const maxComment = 127

func elementComment(n model.ServicePortName) string {
	s := n.String()
	if len(s) > maxComment {
		return s[:maxComment-3] + "..."
	}
	return s
}
