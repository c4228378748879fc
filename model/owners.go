package model

import (
	"cmp"
	"slices"
)

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
	return cmp.Or(cmp.Compare(a.created, b.created), compareNames(a.record.name, b.record.name))
}

// add adds a claim that is not there: the VIPs of a Service's frontends differ.
func (c claims) add(v VIP, who *service) {
	i, _ := slices.BinarySearchFunc(c[v], who, func(a, b *service) int { return compareClaims(v, a, b) })
	c[v] = slices.Insert(c[v], i, who)
}

func (c claims) remove(v VIP, who *service) {
	c[v] = slices.DeleteFunc(c[v], func(s *service) bool { return s == who })
	if len(c[v]) == 0 {
		delete(c, v)
	}
}
