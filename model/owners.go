package model

import "slices"

// claims records the Services that ask for each VIP. The oldest of them owns it, regardless
// of the order in which they arrived.
type claims struct {
	owners map[VIP]*service
	// waiting are the others that ask for a VIP, oldest first. Most VIPs have none.
	waiting map[VIP][]*service
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
	case compareAges(who, owner) < 0:
		c.owners[v] = who
		c.wait(v, owner)
	default:
		c.wait(v, who)
	}
	return c.all(v)
}

func (c claims) wait(v VIP, who *service) {
	list := c.waiting[v]
	i, found := slices.BinarySearchFunc(list, who, compareAges)
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
