package nft

import (
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/persist"
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

// Slots knows in which slots a service port's endpoints are: a *Ruleset or a *Table.
type Slots interface {
	// slots returns the endpoints of one list of a service port in the order of their
	// slots. The name and the frontends of sp count, not its endpoints.
	slots(sp *model.ServicePort, l model.List) []netip.AddrPort
}

// orders holds, for the service ports whose endpoints are not in sorted order, the
// order they are in.
type orders = persist.Map[model.ServicePortName, *order]

type order [len(model.Lists)][]netip.AddrPort // nil: sorted

// slots implements Slots.
func (r *Ruleset) slots(sp *model.ServicePort, l model.List) []netip.AddrPort {
	sp, ok := r.snapshot.ServicePort(sp.Name)
	if !ok {
		return nil
	}
	return slices.AppendSeq(make([]netip.AddrPort, 0, sp.Count(l)), r.bySlot(sp, l))
}

// bySlot yields the endpoints of one list of a service port of r in the order of their slots.
func (r *Ruleset) bySlot(sp *model.ServicePort, l model.List) iter.Seq[netip.AddrPort] {
	if o, ok := r.orders.Get(model.ServicePortKeys, sp.Name); ok && o[l] != nil {
		return slices.Values(o[l])
	}
	return func(yield func(netip.AddrPort) bool) {
		for e := range sp.In(l) {
			if !yield(e.Addr) {
				return
			}
		}
	}
}

// arrange fixes the slots of a service port's endpoints.
func (r *Ruleset) arrange(edit *persist.Edit[model.ServicePortName, *order], before Slots, sp *model.ServicePort) {
	var o order
	for _, l := range model.Lists {
		o[l] = arrangeList(before, sp, l)
	}
	if o[model.ClusterList] == nil && o[model.LocalList] == nil {
		edit.Delete(sp.Name)
		return
	}
	edit.Set(sp.Name, &o)
}

// arrangeList returns nil if the endpoints of a list are in sorted order.
func arrangeList(before Slots, sp *model.ServicePort, l model.List) []netip.AddrPort {
	n := sp.Count(l)
	if n == 0 {
		return nil
	}
	list := before.slots(sp, l)
	if !isSorted(list, sp, l) { // as it mostly is after a restart
		list = keepSlots(list, sp.In(l), n)
	}
	if isSorted(list, sp, l) {
		return nil
	}
	return list
}

// isSorted reports whether addrs are the endpoints of a list, in sorted order.
func isSorted(addrs []netip.AddrPort, sp *model.ServicePort, l model.List) bool {
	for e := range sp.In(l) {
		if len(addrs) == 0 || addrs[0] != e.Addr {
			return false
		}
		addrs = addrs[1:]
	}
	return len(addrs) == 0
}

// keepSlots returns the n wanted endpoints, those that have a slot in the same one as
// far as possible. Those that are new or whose slot is beyond the end fill the holes.
func keepSlots(have []netip.AddrPort, want iter.Seq[model.Endpoint], n int) []netip.AddrPort {
	list := make([]netip.AddrPort, n)
	slotOf := make(map[netip.AddrPort]int, len(have))
	for i, a := range slices.Backward(have) {
		slotOf[a] = i
	}
	var homeless []netip.AddrPort
	for e := range want {
		if i, ok := slotOf[e.Addr]; ok && i < n {
			list[i] = e.Addr
		} else {
			homeless = append(homeless, e.Addr)
		}
	}
	for i := range list {
		if !list[i].IsValid() {
			list[i], homeless = homeless[0], homeless[1:]
		}
	}
	return list
}

// AllSets returns the declarations of all sets and maps, sorted by name.
func (r *Ruleset) AllSets() []Set {
	all := slices.Clone(r.Sets)
	for sp := range r.snapshot.ServicePorts() {
		for _, name := range affinityFor(sp).sets() {
			all = append(all, DeclarationOf(name))
		}
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

func endpointElement(v model.VIP) Element { return Element{Key: addrMaps.key(v)} }

// portElements yields what one service port contributes.
func (r *Ruleset) portElements(sp *model.ServicePort) iter.Seq2[string, Element] {
	return func(yield func(string, Element) bool) {
		if sp == nil {
			return
		}
		affinity := affinityFor(sp)
		for _, fe := range sp.Frontends {
			for set, e := range r.frontendElements(sp, fe, affinity) {
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
func (r *Ruleset) frontendElements(sp *model.ServicePort, fe model.Frontend, a *affinity) iter.Seq2[string, Element] {
	return func(yield func(string, Element) bool) {
		m := mapsFor(fe.Kind)
		key := m.key(fe.VIP)
		more := yield(m.dispatch, Element{Key: key, Verdict: verdict(m, sp, fe), Comment: elementComment(sp.Name)})
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
		for _, l := range model.Lists {
			if !forwards(fe, l) {
				continue
			}
			for e := range slotElements(key, sp.Count(l), r.bySlot(sp, l)) {
				if more = more && yield(m.endpoints[l], e); !more {
					return
				}
			}
		}
		switch fe.SourceNAT {
		case model.MasqueradeAlways:
			more = more && yield(m.sourceNAT, Element{Key: key, Verdict: Verdict{Goto, masqueradeChain}})
		case model.MasqueradeNode:
			more = more && yield(m.sourceNAT, Element{Key: key, Verdict: Verdict{Goto, masqueradeNode}})
		case model.MasqueradeOutside:
		}
		if a != nil && more {
			back, remember := a.verdicts(fe)
			_ = yield(m.affinity, Element{Key: key, Verdict: back}) && yield(m.remember, Element{Key: key, Verdict: remember})
		}
	}
}

// forwards reports whether connections to a frontend may be sent to a list.
func forwards(fe model.Frontend, l model.List) bool {
	return fe.ShortCircuit && l == model.ClusterList || fe.Action == model.Forward && fe.List == l
}

// slotElements yields the elements of one frontend for its n endpoints. All their bytes are
// in one piece of memory: there may be a quarter of a million of them.
func slotElements(vip string, n int, endpoints iter.Seq[netip.AddrPort]) iter.Seq[Element] {
	return func(yield func(Element) bool) {
		var all strings.Builder
		var scratch [64]byte
		key, size := len(vip)+registerSize, 0
		slot := uint32(0)
		for ep := range endpoints {
			b := AppendSlot(append(scratch[:0], vip...), slot)
			b = AppendPort(AppendAddr(b, ep.Addr()), ep.Port())
			if slot == 0 {
				size = len(b)
				all.Grow(n * size)
			}
			all.Write(b)
			slot++
		}
		for rest := all.String(); len(rest) > 0; rest = rest[size:] {
			if !yield(Element{Key: rest[:key], Data: rest[key:size]}) {
				return
			}
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
