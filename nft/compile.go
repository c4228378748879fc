package nft

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/persist"
)

// Compile translates a snapshot. It needs to know what is there already, because of
// the slots: an endpoint that stays keeps its slot, so that a change costs a handful
// of elements however many endpoints there are. before is the Ruleset compiled from
// an earlier snapshot, a Table read from the kernel, or nil.
//
// After an earlier Ruleset the cost follows what changed between the snapshots.
func Compile(before Slots, s *model.FamilySnapshot) *Ruleset {
	r := &Ruleset{Family: s.Family, snapshot: s}
	old, ok := before.(*Ruleset)
	if !ok {
		r.compileAll(before)
		return r
	}
	r.Sets, r.orders, r.chosen = old.Sets, old.orders, old.chosen
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
	if r.Chains = old.Chains; grown || s.Settings != old.snapshot.Settings {
		r.Chains = layoutChains(s.Settings, r.chosen)
	}
	return r
}

func (r *Ruleset) compileAll(before Slots) {
	r.Sets = LayoutSets()
	edit := r.orders.Edit(model.ServicePortKeys)
	for sp := range r.snapshot.ServicePorts() {
		if before != nil {
			r.arrange(edit, before, sp)
		}
		r.chosen.add(sp)
	}
	r.orders = edit.Done()
	r.Chains = layoutChains(r.snapshot.Settings, r.chosen)
}

// Slots knows in which slots a service port's endpoints are: a *Ruleset or a *Table.
type Slots interface {
	// slots returns the endpoints of a service port in the order of their slots. The
	// name and the frontends of sp count, not its endpoints.
	slots(sp *model.ServicePort) []netip.AddrPort
}

// orders holds, for the service ports whose endpoints are not in sorted order, the
// order they are in.
type orders = persist.Map[model.ServicePortName, *order]

type order struct{ endpoints []netip.AddrPort }

// slots implements Slots.
func (r *Ruleset) slots(sp *model.ServicePort) []netip.AddrPort {
	if o, ok := r.orders.Get(model.ServicePortKeys, sp.Name); ok {
		return o.endpoints
	}
	sp, ok := r.snapshot.ServicePort(sp.Name)
	if !ok {
		return nil
	}
	list := make([]netip.AddrPort, len(sp.Endpoints))
	for i, e := range sp.Endpoints {
		list[i] = e.Addr
	}
	return list
}

// arrange fixes the slots of a service port's endpoints.
func (r *Ruleset) arrange(edit *persist.Edit[model.ServicePortName, *order], before Slots, sp *model.ServicePort) {
	have := before.slots(sp)
	list := keepSlots(have, sp.Endpoints)
	sorted := func(list []netip.AddrPort) bool {
		for i, e := range sp.Endpoints {
			if list[i] != e.Addr {
				return false
			}
		}
		return true
	}
	if sorted(list) {
		edit.Delete(sp.Name)
		return
	}
	edit.Set(sp.Name, &order{list})
}

// keepSlots returns the wanted endpoints, those that have a slot in the same one as
// far as possible. Those that are new or whose slot is beyond the end fill the holes.
func keepSlots(have []netip.AddrPort, want []model.Endpoint) []netip.AddrPort {
	list := make([]netip.AddrPort, len(want))
	if len(have) == 0 {
		for i, e := range want {
			list[i] = e.Addr
		}
		return list
	}
	slotOf := make(map[netip.AddrPort]int, len(have))
	for i, a := range slices.Backward(have) {
		slotOf[a] = i
	}
	var homeless []netip.AddrPort
	for _, e := range want {
		if i, ok := slotOf[e.Addr]; ok && i < len(list) {
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

// chosen holds the numbers of endpoints for which there are chains, sorted. Numbers
// are only added: before Linux 6.2, a chain can't be deleted in the batch that takes
// away its last element. The next start leaves out what is not needed.
type chosen struct{ addr, node []int }

// add notes what a service port needs. It reports whether that is new.
func (c *chosen) add(sp *model.ServicePort) bool {
	grown := false
	for _, fe := range sp.Frontends {
		list := &c.addr
		if fe.Kind == model.NodePort {
			list = &c.node
		}
		n := len(sp.Endpoints)
		i, found := slices.BinarySearch(*list, n)
		if fe.Action == model.Forward && !found {
			*list = slices.Insert(slices.Clone(*list), i, n)
			grown = true
		}
	}
	return grown
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

// portElements yields what one service port contributes.
func (r *Ruleset) portElements(sp *model.ServicePort) iter.Seq2[string, Element] {
	return func(yield func(string, Element) bool) {
		if sp == nil {
			return
		}
		endpoints := r.slots(sp)
		comment := elementComment(sp.Name)
		for _, fe := range sp.Frontends {
			m := mapsFor(fe.Kind)
			key := m.key(fe.VIP)
			if !yield(m.dispatch, Element{Key: key, Verdict: m.verdict(fe, len(endpoints)), Comment: comment}) {
				return
			}
			if fe.Action != model.Forward {
				continue
			}
			for e := range slotElements(key, endpoints) {
				if !yield(m.endpoints, e) {
					return
				}
			}
			if fe.SourceNAT == model.MasqueradeAlways {
				e := Element{Key: key, Verdict: Verdict{Goto, masqueradeChain}}
				if !yield(m.sourceNAT, e) {
					return
				}
			}
		}
	}
}

// slotElements yields the endpoints' elements of one frontend. All their bytes are in
// one piece of memory: there may be a quarter of a million of them.
func slotElements(vip string, endpoints []netip.AddrPort) iter.Seq[Element] {
	return func(yield func(Element) bool) {
		const addr = 16 // at most
		b := make([]byte, 0, (len(vip)+registerSize+addr+registerSize)*len(endpoints))
		for i, ep := range endpoints {
			b = AppendSlot(append(b, vip...), uint32(i))
			b = AppendPort(AppendAddr(b, ep.Addr()), ep.Port())
		}
		all := string(b)
		size, key := len(all)/max(len(endpoints), 1), len(vip)+registerSize
		for i := range endpoints {
			one := all[i*size : (i+1)*size]
			if !yield(Element{Key: one[:key], Data: one[key:]}) {
				return
			}
		}
	}
}

// frontendMaps are the maps that serve one kind of frontend: those keyed by address,
// protocol and port or, for node ports, those keyed by protocol and port.
type frontendMaps struct {
	dispatch, endpoints, sourceNAT string
	chainName                      func(n int) string
	withAddr                       bool
}

func mapsFor(k model.FrontendKind) frontendMaps {
	if k == model.NodePort {
		return frontendMaps{ServiceNodePorts, NodePortEndpoints, NodePortSourceNAT, nodePortEndpointsChainName, false}
	}
	return frontendMaps{ServiceIPs, Endpoints, SourceNAT, endpointsChainName, true}
}

func (m frontendMaps) key(v model.VIP) string {
	key := make([]byte, 0, 24)
	if m.withAddr {
		key = AppendAddr(key, v.Addr)
	}
	return string(AppendPort(AppendProto(key, v.Protocol), v.Port))
}

func (m frontendMaps) verdict(fe model.Frontend, n int) Verdict {
	switch fe.Action {
	case model.Forward:
		return Verdict{Goto, m.chainName(n)}
	case model.Drop:
		return Verdict{Kind: DropPacket}
	case model.Reject:
	}
	return Verdict{Goto, rejectChain}
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
