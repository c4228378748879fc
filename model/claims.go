package model

import (
	"iter"
	"slices"
)

// claims knows which Service owns each VIP. Of several that ask for one, the oldest
// owns it, whatever the order in which they arrived.
type claims map[VIP]claim

// claim is a VIP's owner and those who asked for it as well, oldest first. Most VIPs
// are asked for once, so the others cost nothing there.
type claim struct {
	owner   claimant
	waiting []claimant
}

// claimant is one port of one Service.
type claimant struct {
	service *service
	port    int
}

func (c claimant) older(o claimant) bool {
	if c.service != o.service {
		return c.service.older(o.service)
	}
	return c.port < o.port
}

func (c claim) all() iter.Seq[*service] {
	return func(yield func(*service) bool) {
		if !yield(c.owner.service) {
			return
		}
		for _, w := range c.waiting {
			if !yield(w.service) {
				return
			}
		}
	}
}

// add registers a claim and returns all who ask for this VIP, if there are others.
func (cs claims) add(v VIP, who claimant) iter.Seq[*service] {
	c, contested := cs[v]
	switch {
	case !contested:
		cs[v] = claim{owner: who}
		return func(func(*service) bool) {}
	case who.older(c.owner):
		c.waiting = slices.Insert(slices.Clone(c.waiting), 0, c.owner)
		c.owner = who
	default:
		i, _ := slices.BinarySearchFunc(c.waiting, who, func(a, b claimant) int {
			if a.older(b) {
				return -1
			}
			return 1
		})
		c.waiting = slices.Insert(slices.Clone(c.waiting), i, who)
	}
	cs[v] = c
	return c.all()
}

// remove withdraws a claim and returns all who still ask for this VIP.
func (cs claims) remove(v VIP, who claimant) iter.Seq[*service] {
	c := cs[v]
	switch {
	case c.owner != who:
		c.waiting = slices.DeleteFunc(slices.Clone(c.waiting), func(w claimant) bool { return w == who })
	case len(c.waiting) == 0:
		delete(cs, v)
		return func(func(*service) bool) {}
	default:
		c.owner, c.waiting = c.waiting[0], slices.Clone(c.waiting[1:])
	}
	cs[v] = c
	return c.all()
}

func (cs claims) owner(v VIP) claimant { return cs[v].owner }
