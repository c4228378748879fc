package nft

import (
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// slot is an endpoint and where it is.
type slot struct {
	number   uint32
	endpoint netip.AddrPort
}

// A slotDelta compares a service port with the same one in another ruleset: it holds the
// slots whose endpoints differ. Of thousands of endpoints, Diff then encodes only these.
type slotDelta struct {
	port    *model.ServicePort
	changed [len(model.TrafficPolicies)][]slot // as the one ruleset has them
}

// slotDeltas returns one for each of two versions of a service port, or nil if there is
// only one version.
func slotDeltas(have, want *Ruleset, old, now *model.ServicePort) (forOld, forNow *slotDelta) {
	if old == nil || now == nil {
		return nil, nil
	}
	forOld, forNow = &slotDelta{port: now}, &slotDelta{port: old}
	for _, l := range model.TrafficPolicies {
		was, is := have.bySlot(old, l), want.bySlot(now, l)
		for n := uint32(0); ; n++ {
			a, had := was.next()
			b, has := is.next()
			if !had && !has {
				break
			}
			if had && has && a == b {
				continue
			}
			if had {
				forOld.changed[l] = append(forOld.changed[l], slot{n, a})
			}
			if has {
				forNow.changed[l] = append(forNow.changed[l], slot{n, b})
			}
		}
	}
	return forOld, forNow
}

// slots returns those of a frontend that differ, or false if the other version does not have
// the frontend.
func (c *slotDelta) slots(fe model.Frontend, l model.TrafficPolicy) ([]slot, bool) {
	if c == nil || !slices.ContainsFunc(c.port.Frontends, func(o model.Frontend) bool {
		return o.Kind == fe.Kind && o.VIP == fe.VIP && o.Uses(l)
	}) {
		return nil, false
	}
	return c.changed[l], true
}

// slotElements yields the elements of one frontend for a list: of all endpoints or, if the
// other version has the frontend as well, of those in slots that differ.
func (r *Ruleset) slotElements(vip string, sp *model.ServicePort, fe model.Frontend, l model.TrafficPolicy, other *slotDelta) iter.Seq[Element] {
	if some, ok := other.slots(fe, l); ok {
		return encodeSlots(vip, len(some), slices.Values(some))
	}
	return encodeSlots(vip, sp.Count(l), func(yield func(slot) bool) {
		n := uint32(0)
		for a := range r.bySlot(sp, l).all() {
			if !yield(slot{n, a}) {
				return
			}
			n++
		}
	})
}

// encodeSlots yields the elements of n slots. All their bytes are in one piece of memory:
// there may be a quarter of a million of them.
func encodeSlots(vip string, n int, slots iter.Seq[slot]) iter.Seq[Element] {
	return func(yield func(Element) bool) {
		var all strings.Builder
		var scratch [64]byte
		key, size := len(vip)+registerSize, 0
		for s := range slots {
			b := AppendSlot(append(scratch[:0], vip...), s.number)
			b = AppendPort(AppendAddr(b, s.endpoint.Addr()), s.endpoint.Port())
			if size == 0 {
				size = len(b)
				all.Grow(n * size)
			}
			all.Write(b)
		}
		for rest := all.String(); len(rest) > 0; rest = rest[size:] {
			if !yield(Element{Key: rest[:key], Data: rest[key:size]}) {
				return
			}
		}
	}
}
