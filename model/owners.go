package model

import "slices"

// claims records the Services that ask for each VIP. The one with it as cluster IP owns it, since the API server gave
// it the address; otherwise the oldest, regardless of the order in which they arrived.
type claims struct {
	owners map[VIP]*service
	// waiting are the others that ask for a VIP, in the order in which they would get it. Most VIPs have none.
	waiting map[VIP][]*service
}

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

// all returns the Services that ask for a VIP, its owner first.
func (c claims) all(v VIP) []*service {
	if owner := c.owners[v]; owner != nil {
		return append([]*service{owner}, c.waiting[v]...)
	}
	return nil
}

// add registers a claim and returns all Services that ask for this VIP, if there are others.
// A Service asks once, however many of its ports do.
func (c claims) add(v VIP, who *service) []*service {
	switch owner := c.owners[v]; {
	case owner == nil:
		c.owners[v] = who
		return nil
	case owner == who:
		return nil
	case compareClaims(v, who, owner) < 0:
		c.owners[v] = who
		c.wait(v, owner)
	default:
		c.wait(v, who)
	}
	return c.all(v)
}

func (c claims) wait(v VIP, who *service) {
	list := c.waiting[v]
	i, found := slices.BinarySearchFunc(list, who, func(a, b *service) int { return compareClaims(v, a, b) })
	if !found {
		c.waiting[v] = slices.Insert(list, i, who)
	}
}

// remove withdraws a claim and returns all Services that still ask for this VIP.
func (c claims) remove(v VIP, who *service) []*service {
	list := c.waiting[v]
	if c.owners[v] == who {
		if len(list) == 0 {
			delete(c.owners, v)
			return nil
		}
		c.owners[v] = list[0]
		list = slices.Delete(list, 0, 1)
	} else if i := slices.Index(list, who); i >= 0 {
		list = slices.Delete(list, i, i+1)
	}
	if len(list) == 0 {
		delete(c.waiting, v)
	} else {
		c.waiting[v] = list
	}
	return c.all(v)
}
