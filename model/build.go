package model

import "slices"

// Snapshot returns the current state. If nothing changed since the last call, it
// returns the same pointer.
func (b *Builder) Snapshot() *Snapshot {
	if len(b.dirty) == 0 && !b.settingsStale && !b.problemsStale {
		return b.last
	}
	next := new(Snapshot)
	*next = *b.last
	next.node = b.nodeState()
	next.object = NodeObject{Addrs: b.nodeFacts.addrs, PodCIDRs: b.nodeFacts.podCIDRs}
	if b.settingsStale {
		b.updateSettings(next)
		b.settingsStale = false
	}
	b.updateServices(next)
	if b.problemsStale {
		next.problems = b.allProblems()
		b.problemsStale = false
	}
	b.last = next
	return next
}

func (b *Builder) allProblems() []Problem {
	var all []Problem
	for _, list := range b.problems {
		all = append(all, list...)
	}
	slices.SortFunc(all, compareProblems)
	return all
}

// updateServices decides again about all dirty Services.
func (b *Builder) updateServices(next *Snapshot) {
	e := newEdit(next)
	b.counts.countEndpoints(e, b.last, b.config.DropInvalid)
	for _, r := range b.dirty {
		r.dirty = false
		b.updateService(e, r)
		b.forget(r)
	}
	b.dirty = nil // frees the memory: the list is longest at the start
	e.done(next)
}
