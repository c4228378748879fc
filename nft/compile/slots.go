package compile

import (
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/persist"
	"github.com/vmapd/vmapd/nft"
)

// orders holds the order of the slots of each service port with endpoints that are not in sorted
// order, or in a lookup table.
type orders = persist.Map[*model.ServicePortName, *order]

type ordersEdit = persist.Edit[*model.ServicePortName, *order]

// An order has the slots of each list.
type order [len(model.TrafficPolicies)]listOrder

// A listOrder is the zero value if an endpoint each has a slot, in sorted order.
type listOrder struct {
	list  []netip.AddrPort // in another order
	table []uint32         // as model.ServicePort.Table has it
}

func (o listOrder) isZero() bool { return o.list == nil && o.table == nil }

// slot is an endpoint and the number of its slot.
type slot struct {
	number   uint32
	endpoint netip.AddrPort
}

// A version is a service port in one of two rulesets.
type version struct {
	*model.ServicePort
	other map[frontend]model.Frontend        // of the other version; nil: there is none
	slots [len(model.TrafficPolicies)][]slot // that differ from the other version's
}

// bySlot goes over the endpoints of one list of a service port in the order of their slots.
type bySlot struct {
	order []netip.AddrPort // first these
	table []uint32         // then these of rest, if it is not nil
	rest  []model.Endpoint // else these, as far as they are in list
	list  model.TrafficPolicy
}

// bySlot returns the endpoints of one list of a service port of r.
func (r *Ruleset) bySlot(sp *model.ServicePort, l model.TrafficPolicy) bySlot {
	if o, ok := r.orders.Get(model.ServicePortKeys, &sp.Name); ok && !o[l].isZero() {
		if o[l].table == nil {
			return bySlot{order: o[l].list}
		}
		return bySlot{table: o[l].table, rest: sp.Endpoints}
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
	if s.table != nil {
		if len(s.table) == 0 {
			return netip.AddrPort{}, false
		}
		first := s.table[0]
		s.table = s.table[1:]
		return s.rest[first].Addr, true
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

// assignSlots chooses the slots of a service port's endpoints: an endpoint with a slot keeps it, unless a
// lookup table has all of them. have may be nil.
func (r *Ruleset) assignSlots(edit *ordersEdit, have *nft.Table, sp *model.ServicePort) {
	if have == nil && !sp.Algorithm.HasTable() {
		return
	}
	var o order
	for _, l := range model.TrafficPolicies {
		if o[l].table = sp.Table(l); o[l].table != nil || have == nil {
			continue
		}
		list := slotsIn(have, sp, l)
		if isSorted(list, sp, l) { // as it mostly is after a restart
			continue
		}
		if list = keepSlots(list, bySlot{rest: sp.Endpoints, list: l}); !isSorted(list, sp, l) {
			o[l].list = list
		}
	}
	o.store(edit, &sp.Name)
}

// slotsIn returns the slots of the first frontend that has some. If other frontends have their endpoints in another
// order, the next batch changes them.
func slotsIn(have *nft.Table, sp *model.ServicePort, l model.TrafficPolicy) []netip.AddrPort {
	for _, fe := range sp.Frontends {
		of := nft.FrontendsOf(fe.Kind)
		key := of.Key(fe.VIP)
		if list := have.EndpointsOf(of.Endpoints[l], key, sp.Count(l)); len(list) > 0 {
			return list
		}
	}
	return nil
}

// updateSlots is assignSlots after a ruleset in which the service port was old. The cost is mostly that of the change,
// also among thousands of endpoints.
func (r *Ruleset) updateSlots(edit *ordersEdit, have *Ruleset, old, now *model.ServicePort) {
	var o order
	for _, l := range model.TrafficPolicies {
		was := have.bySlot(old, l)
		if old.Slots(l) > 0 || now.Slots(l) > 0 {
			if o[l].table = was.table; old.Slots(l) != now.Slots(l) || !slices.Equal(old.Endpoints, now.Endpoints) {
				o[l].table = now.Table(l)
			}
			continue
		}
		left, joined := difference(bySlot{rest: old.Endpoints, list: l}, bySlot{rest: now.Endpoints, list: l})
		list := was.order
		if len(left) > 0 || len(joined) > 0 {
			if list == nil {
				list = slices.AppendSeq(make([]netip.AddrPort, 0, old.Count(l)), was.all())
			}
			list = moveSlots(list, left, joined)
		}
		if !isSorted(list, now, l) {
			o[l].list = list
		}
	}
	o.store(edit, &now.Name)
}

func (o order) store(edit *ordersEdit, name *model.ServicePortName) {
	if o[model.Cluster].isZero() && o[model.Local].isZero() {
		edit.Delete(name)
	} else {
		edit.Set(name, &o)
	}
}

// isSorted reports whether addrs are the endpoints of a list, in sorted order.
func isSorted(addrs []netip.AddrPort, sp *model.ServicePort, l model.TrafficPolicy) bool {
	for a := range (bySlot{rest: sp.Endpoints, list: l}).all() {
		if len(addrs) == 0 || addrs[0] != a {
			return false
		}
		addrs = addrs[1:]
	}
	return len(addrs) == 0
}

// difference compares two lists of endpoints in sorted order.
func difference(have, want bySlot) (left, joined []netip.AddrPort) {
	a, had := have.next()
	b, has := want.next()
	for had || has {
		switch {
		case had && has && a == b:
			a, had = have.next()
			b, has = want.next()
		case had && (!has || a.Compare(b) < 0):
			left = append(left, a)
			a, had = have.next()
		default:
			joined = append(joined, b)
			b, has = want.next()
		}
	}
	return left, joined
}

// moveSlots returns the endpoints in the order of their slots after some left and others joined, both sorted. Those
// that joined and those with a slot beyond the new end take the slots that are free.
func moveSlots(have, left, joined []netip.AddrPort) []netip.AddrPort {
	hasLeft := func(a netip.AddrPort) bool {
		_, found := slices.BinarySearchFunc(left, a, netip.AddrPort.Compare)
		return found
	}
	list := make([]netip.AddrPort, len(have)-len(left)+len(joined))
	end := min(len(list), len(have))
	homeless := slices.Clone(joined)
	for _, a := range have[end:] {
		if !hasLeft(a) {
			homeless = append(homeless, a)
		}
	}
	slices.SortFunc(homeless, netip.AddrPort.Compare)
	copy(list, have)
	for i := range list {
		if i >= end || len(left) > 0 && hasLeft(have[i]) {
			list[i], homeless = homeless[0], homeless[1:]
		}
	}
	return list
}

// keepSlots is moveSlots to the wanted endpoints, from slots in which an endpoint may be twice: it keeps the first one.
func keepSlots(have []netip.AddrPort, want bySlot) []netip.AddrPort {
	have = slices.Clone(have)
	seen := make(map[netip.AddrPort]bool, len(have))
	for i, a := range have {
		if seen[a] {
			have[i] = netip.AddrPort{}
		}
		seen[a] = true
	}
	left, joined := difference(bySlot{order: slices.SortedFunc(slices.Values(have), netip.AddrPort.Compare)}, want)
	return moveSlots(have, left, joined)
}

// versions returns a service port in the ruleset have and in r, with the slots that differ. One of them may be nil.
func (r *Ruleset) versions(have *Ruleset, old, now *model.ServicePort) (before, after version) {
	before, after = version{ServicePort: old}, version{ServicePort: now}
	if old == nil || now == nil {
		return before, after
	}
	before.other, after.other = frontendsOf(now), frontendsOf(old)
	for _, l := range model.TrafficPolicies {
		was, is := have.bySlot(old, l), r.bySlot(now, l)
		a, had := was.next()
		b, has := is.next()
		for i := uint32(0); had || has; i++ {
			if had && (!has || a != b) {
				before.slots[l] = append(before.slots[l], slot{i, a})
			}
			if has && (!had || a != b) {
				after.slots[l] = append(after.slots[l], slot{i, b})
			}
			a, had = was.next()
			b, has = is.next()
		}
	}
	return before, after
}

// frontend is what makes two frontends the same in two versions of a service port.
type frontend struct {
	kind model.FrontendKind
	vip  model.VIP
}

func frontendsOf(sp *model.ServicePort) map[frontend]model.Frontend {
	all := make(map[frontend]model.Frontend, len(sp.Frontends))
	for _, fe := range sp.Frontends {
		all[frontend{fe.Kind, fe.VIP}] = fe
	}
	return all
}

// slotElements adds the elements of a list for a frontend, with keys that begin with prefix: all endpoints or, where
// the other version has them, too, those in slots that differ.
func (r *Ruleset) slotElements(
	prefix string, v version, fe model.Frontend, l model.TrafficPolicy, add func(nft.Element),
) {
	n, list := v.SlotCount(l), func(yield func(slot) bool) {
		n := uint32(0)
		for a := range r.bySlot(v.ServicePort, l).all() {
			if !yield(slot{n, a}) {
				return
			}
			n++
		}
	}
	if other, ok := v.other[frontend{fe.Kind, fe.VIP}]; ok && other.Uses(l) {
		n, list = len(v.slots[l]), slices.Values(v.slots[l])
	}
	encodeSlots(prefix, n, list, add)
}

// encodeSlots adds the elements of n slots. All their bytes are in one piece of memory:
// there may be a quarter of a million of them.
func encodeSlots(prefix string, n int, slots iter.Seq[slot], add func(nft.Element)) {
	var all strings.Builder
	var scratch [64]byte
	key, size := len(prefix)+nft.RegisterSize, 0
	for s := range slots {
		b := nft.AppendSlot(append(scratch[:0], prefix...), s.number)
		b = nft.AppendPort(nft.AppendAddr(b, s.endpoint.Addr()), s.endpoint.Port())
		if size == 0 {
			size = len(b)
			all.Grow(n * size)
		}
		all.Write(b)
	}
	for rest := all.String(); len(rest) > 0; rest = rest[size:] {
		add(nft.Element{Key: rest[:key], Data: rest[key:size]})
	}
}
