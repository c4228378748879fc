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

// An order has, of each list, the index in ServicePort.Endpoints of the one in each slot, as ServicePort.Table has it;
// nil: an endpoint each has a slot, in sorted order.
type order [len(model.TrafficPolicies)][]uint32

// bySlot yields the endpoints of one list of a service port of r, in the order of their slots.
func (r *Ruleset) bySlot(sp *model.ServicePort, l model.TrafficPolicy) iter.Seq[netip.AddrPort] {
	return func(yield func(netip.AddrPort) bool) {
		o, ok := r.orders.Get(model.ServicePortKeys, &sp.Name)
		if !ok || o[l] == nil {
			for e := range sp.In(l) {
				if !yield(e.Addr) {
					return
				}
			}
			return
		}
		for _, i := range o[l] {
			if !yield(sp.Endpoints[i].Addr) {
				return
			}
		}
	}
}

// slots returns what bySlot yields.
func (r *Ruleset) slots(sp *model.ServicePort, l model.TrafficPolicy) []netip.AddrPort {
	return slices.AppendSeq(make([]netip.AddrPort, 0, sp.SlotCount(l)), r.bySlot(sp, l))
}

// assignSlots chooses the slots of a service port's endpoints. had returns those of a list before: an endpoint with a
// slot keeps it, unless a lookup table has all of them.
func assignSlots(
	edit *persist.Edit[*model.ServicePortName, *order], sp *model.ServicePort,
	had func(l model.TrafficPolicy) []netip.AddrPort,
) {
	var o order
	for _, l := range model.TrafficPolicies {
		if o[l] = sp.Table(l); o[l] == nil {
			o[l] = keepSlots(had(l), sp, l)
		}
	}
	if o[model.Cluster] == nil && o[model.Local] == nil {
		edit.Delete(&sp.Name)
	} else {
		edit.Set(&sp.Name, &o)
	}
}

// slotsIn returns the slots that a table has, which may be nil, for the first frontend with some. If other frontends
// have their endpoints in another order, the next batch changes them.
func slotsIn(have *nft.Table, sp *model.ServicePort, l model.TrafficPolicy) []netip.AddrPort {
	for _, fe := range sp.Frontends {
		if have == nil {
			break
		}
		of := nft.FrontendsOf(fe.Kind)
		if list := have.EndpointsOf(of.Endpoints[l], of.Key(fe.VIP)); len(list) > 0 {
			return list
		}
	}
	return nil
}

// keepSlots returns the order in which the endpoints of a list keep the slots that they had. The others, also those
// with a slot beyond the new end, take the slots that are free.
func keepSlots(had []netip.AddrPort, sp *model.ServicePort, l model.TrafficPolicy) []uint32 {
	if len(had) == 0 {
		return nil
	}
	const free = ^uint32(0)
	slots, placed := slices.Repeat([]uint32{free}, sp.Count(l)), make([]bool, len(sp.Endpoints))
	next := 0
	for i, a := range had[:min(len(had), len(slots))] {
		at, found := next, next < len(sp.Endpoints) && sp.Endpoints[next].Addr == a
		if !found { // mostly they are sorted
			at, found = sp.Find(a)
		}
		if found && sp.Endpoints[at].In(l) && !placed[at] {
			slots[i], placed[at] = uint32(at), true
		}
		next = at + 1
	}
	next = 0
	for i := range slots {
		if slots[i] != free {
			continue
		}
		for placed[next] || !sp.Endpoints[next].In(l) {
			next++
		}
		slots[i], placed[next] = uint32(next), true
	}
	if slices.IsSorted(slots) {
		return nil
	}
	return slots
}

// A version is a service port in one of two rulesets, with what the other one has: without it, nil, it is all new.
type version struct {
	*model.ServicePort
	other map[model.VIP]model.Frontend
	slots [len(model.TrafficPolicies)][]netip.AddrPort
}

// version returns a service port of r beside another version, in other. One of them may be nil.
func (r *Ruleset) version(sp *model.ServicePort, other *Ruleset, was *model.ServicePort) version {
	v := version{ServicePort: sp}
	if sp == nil || was == nil {
		return v
	}
	v.other = make(map[model.VIP]model.Frontend, len(was.Frontends))
	for _, fe := range was.Frontends {
		v.other[fe.VIP] = fe
	}
	for _, l := range model.TrafficPolicies {
		v.slots[l] = other.slots(was, l)
	}
	return v
}

// slotElements adds the elements of a list for a frontend, with keys that begin with prefix: all endpoints or, where
// the other version has them, too, those in slots that differ. All their bytes are in one piece of memory: there may be
// a quarter of a million of them.
func (r *Ruleset) slotElements(
	prefix string, v version, fe model.Frontend, l model.TrafficPolicy, add func(nft.Element),
) {
	var same []netip.AddrPort
	if other, ok := v.other[fe.VIP]; ok && other.Uses(l) {
		same = v.slots[l]
	}
	var all strings.Builder
	var scratch [64]byte
	key, size, n := len(prefix)+nft.RegisterSize, 0, -1
	for a := range r.bySlot(v.ServicePort, l) {
		if n++; n < len(same) && same[n] == a {
			continue
		}
		b := nft.AppendSlot(append(scratch[:0], prefix...), uint32(n))
		b = nft.AppendPort(nft.AppendAddr(b, a.Addr()), a.Port())
		if size == 0 {
			size = len(b)
			all.Grow(max(1, v.SlotCount(l)-len(same)) * size)
		}
		all.Write(b)
	}
	for rest := all.String(); len(rest) > 0; rest = rest[size:] {
		add(nft.Element{Key: rest[:key], Data: rest[key:size]})
	}
}
