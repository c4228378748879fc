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

// counterpart is the same service port in another ruleset, and in which slots the endpoints
// are others there. So of thousands of endpoints only those are looked at that change.
type counterpart struct {
	port    *model.ServicePort
	changed [len(model.TrafficPolicies)][]slot // as the one ruleset has them
}

// counterparts returns for each of two versions of a service port the other one, or nil if
// there is none.
func counterparts(have, want *Ruleset, old, now *model.ServicePort) (forOld, forNow *counterpart) {
	if old == nil || now == nil {
		return nil, nil
	}
	forOld, forNow = &counterpart{port: now}, &counterpart{port: old}
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

// slots returns those of a frontend that the counterpart does not have alike, or false if that
// has none at all.
func (c *counterpart) slots(fe model.Frontend, l model.TrafficPolicy) ([]slot, bool) {
	if c == nil || !slices.ContainsFunc(c.port.Frontends, func(o model.Frontend) bool {
		return o.Kind == fe.Kind && o.VIP == fe.VIP && forwards(o, l)
	}) {
		return nil, false
	}
	return c.changed[l], true
}

// slotElements yields the elements of one frontend for a list: of all endpoints or, if the
// counterpart has the frontend as well, of those in other slots there.
func (r *Ruleset) slotElements(vip string, sp *model.ServicePort, fe model.Frontend, l model.TrafficPolicy, other *counterpart) iter.Seq[Element] {
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
