package nft

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/persist"
)

// Slots knows in which slots a service port's endpoints are: a *Ruleset or a *Table.
type Slots interface {
	// slots returns the endpoints of one list of a service port in the order of their
	// slots. The name and the frontends of sp count, not its endpoints.
	slots(sp *model.ServicePort, l model.TrafficPolicy) []netip.AddrPort
}

// orders holds, for the service ports whose endpoints are not in sorted order, the
// order they are in.
type orders = persist.Map[model.ServicePortName, *order]

type order [len(model.TrafficPolicies)][]netip.AddrPort // nil: sorted

// slots implements Slots.
func (r *Ruleset) slots(sp *model.ServicePort, l model.TrafficPolicy) []netip.AddrPort {
	sp, ok := r.snapshot.ServicePort(sp.Name)
	if !ok {
		return nil
	}
	return slices.AppendSeq(make([]netip.AddrPort, 0, sp.Count(l)), r.bySlot(sp, l).all())
}

// bySlot goes over the endpoints of one list of a service port in the order of their slots.
type bySlot struct {
	order []netip.AddrPort // nil: they are in sorted order
	rest  []model.Endpoint // then these, as far as they are in list
	list  model.TrafficPolicy
}

// bySlot returns the endpoints of one list of a service port of r.
func (r *Ruleset) bySlot(sp *model.ServicePort, l model.TrafficPolicy) bySlot {
	if o, ok := r.orders.Get(model.ServicePortKeys, sp.Name); ok && o[l] != nil {
		return bySlot{order: o[l]}
	}
	return bySlot{rest: sp.Endpoints, list: l}
}

// next returns the endpoint in the next slot, or false behind the last one.
func (s *bySlot) next() (netip.AddrPort, bool) {
	if len(s.order) > 0 {
		first := s.order[0]
		s.order = s.order[1:]
		return first, true
	}
	for len(s.rest) > 0 {
		first := &s.rest[0]
		if s.rest = s.rest[1:]; first.In(s.list) {
			return first.Addr, true
		}
	}
	return netip.AddrPort{}, false
}

func (s bySlot) all() iter.Seq[netip.AddrPort] {
	return func(yield func(netip.AddrPort) bool) {
		for {
			if a, ok := s.next(); !ok || !yield(a) {
				return
			}
		}
	}
}

// arrange fixes the slots of a service port's endpoints.
func (r *Ruleset) arrange(edit *persist.Edit[model.ServicePortName, *order], before Slots, sp *model.ServicePort) {
	var o order
	for _, l := range model.TrafficPolicies {
		o[l] = arrangeList(before, sp, l)
	}
	if o[model.Cluster] == nil && o[model.Local] == nil {
		edit.Delete(sp.Name)
		return
	}
	edit.Set(sp.Name, &o)
}

// arrangeList returns nil if the endpoints of a list are in sorted order.
func arrangeList(before Slots, sp *model.ServicePort, l model.TrafficPolicy) []netip.AddrPort {
	if r, ok := before.(*Ruleset); ok {
		if old, ok := r.snapshot.ServicePort(sp.Name); ok {
			return r.rearrange(old, sp, l)
		}
	}
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
func isSorted(addrs []netip.AddrPort, sp *model.ServicePort, l model.TrafficPolicy) bool {
	for e := range sp.In(l) {
		if len(addrs) == 0 || addrs[0] != e.Addr {
			return false
		}
		addrs = addrs[1:]
	}
	return len(addrs) == 0
}

// rearrange is arrangeList after r, in which the service port was old: its cost is mostly
// that of what changed, also among thousands of endpoints.
func (r *Ruleset) rearrange(old, now *model.ServicePort, l model.TrafficPolicy) []netip.AddrPort {
	order := r.bySlot(old, l).order
	gone, come := differences(bySlot{rest: old.Endpoints, list: l}, bySlot{rest: now.Endpoints, list: l})
	if len(gone) == 0 && len(come) == 0 {
		return order
	}
	if order == nil {
		order = r.slots(now, l)
	}
	if order = moveSlots(order, gone, come); isSorted(order, now, l) {
		return nil
	}
	return order
}

// differences compares two lists of endpoints in sorted order.
func differences(have, want bySlot) (gone, come []netip.AddrPort) {
	a, had := have.next()
	b, has := want.next()
	for had || has {
		order := 0
		switch {
		case !has:
			order = -1
		case !had:
			order = 1
		case a != b:
			order = a.Compare(b)
		}
		if order < 0 {
			gone = append(gone, a)
		}
		if order > 0 {
			come = append(come, b)
		}
		if order <= 0 {
			a, had = have.next()
		}
		if order >= 0 {
			b, has = want.next()
		}
	}
	return gone, come
}

// moveSlots is keepSlots for who knows which endpoints go and come, both sorted.
func moveSlots(have, gone, come []netip.AddrPort) []netip.AddrPort {
	n := len(have) - len(gone) + len(come)
	list := make([]netip.AddrPort, n)
	copy(list, have)
	isGone := func(a netip.AddrPort) bool {
		_, found := slices.BinarySearchFunc(gone, a, netip.AddrPort.Compare)
		return found
	}
	homeless := slices.Clone(come)
	for _, a := range have[min(n, len(have)):] {
		if !isGone(a) {
			homeless = append(homeless, a)
		}
	}
	slices.SortFunc(homeless, netip.AddrPort.Compare)
	for i := range list {
		if i >= len(have) || len(gone) > 0 && isGone(list[i]) {
			list[i], homeless = homeless[0], homeless[1:]
		}
	}
	return list
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
