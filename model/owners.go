package model

import "slices"

// claims has the Services that ask for each VIP, in the order in which they get it. The one with it as cluster IP owns
// it, since the API server gave it the address; otherwise the oldest, regardless of the order in which they arrived.
type claims map[VIP][]*service

// compareClaims orders Services that ask for a VIP.
func compareClaims(v VIP, a, b *service) int {
	f := FamilyOf(v.Addr)
	if first, second := a.clusterIP(f) == v.Addr, b.clusterIP(f) == v.Addr; first != second {
		if first {
			return -1
		}
		return 1
	}
	return compareAges(a, b)
}

// owner returns the Service that gets a VIP; nil: none asks for it.
func (c claims) owner(v VIP) *service {
	if list := c[v]; len(list) > 0 {
		return list[0]
	}
	return nil
}

// add registers a claim.
func (c claims) add(v VIP, who *service) {
	i, found := slices.BinarySearchFunc(c[v], who, func(a, b *service) int { return compareClaims(v, a, b) })
	if !found {
		c[v] = slices.Insert(c[v], i, who)
	}
}

// remove withdraws a claim.
func (c claims) remove(v VIP, who *service) {
	c[v] = slices.DeleteFunc(c[v], func(s *service) bool { return s == who })
	if len(c[v]) == 0 {
		delete(c, v)
	}
}
