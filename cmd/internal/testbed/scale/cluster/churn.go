package cluster

import (
	"net/netip"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// Event is one write to the API server.
type Event struct {
	Slice   *discoveryv1.EndpointSlice // a whole new version; of what is deleted, the last one
	Deleted bool
}

// Replace replaces the oldest endpoint of one Service by a new one that is ready, in one
// write. It returns the write and the new endpoint's address, which no endpoint had before.
// The Services take turns; Churn never changes them.
func (c *Cluster) Replace(at time.Time) (Event, netip.Addr) {
	s := c.services[c.probed%c.probes]
	c.probed++
	old, p := s.pods[0], c.newPod()
	p.condition(true, false)
	p.slice = old.slice
	s.pods = append(slices.Delete(s.pods, 0, 1), p)
	i := slices.Index(p.slice.pods, old)
	p.slice.pods = append(slices.Delete(p.slice.pods, i, i+1), p)
	return c.write(s, p.slice, at), p.address()
}

// rollout is a rolling update of a Service.
type rollout struct {
	*service
	left     int // pods that are to be replaced, with the one in progress
	step     int
	old, new *pod
}

// parallel is the number of Services that are updated at a time.
const parallel = 50

// Churn takes the next step of a rolling update: a pod comes, is ready later, another one is terminating, and is gone
// later.
func (c *Cluster) Churn(at time.Time) Event {
	restless := c.services[min(c.probes, len(c.services)-1):]
	for len(c.rollouts) < min(parallel, len(restless)) {
		c.rollouts = append(c.rollouts, c.newRollout(restless))
	}
	i := c.rng.IntN(len(c.rollouts))
	r := c.rollouts[i]
	e := c.advance(r, at)
	if r.left == 0 {
		c.rollouts[i] = c.newRollout(restless)
	}
	return e
}

// newRollout picks a Service that is not being updated.
func (c *Cluster) newRollout(from []*service) *rollout {
	for {
		s := from[c.rng.IntN(len(from))]
		if !slices.ContainsFunc(c.rollouts, func(r *rollout) bool { return r.service == s && r.left > 0 }) {
			return &rollout{service: s, left: len(s.pods)}
		}
	}
}

// advance takes one step with a Service: of four for each pod.
func (c *Cluster) advance(r *rollout, at time.Time) Event {
	p, gone := r.new, false
	switch r.step {
	case 0:
		p = c.newPod()
		r.new = p
		c.add(r.service, p)
	case 1:
		p.condition(true, false)
	case 2:
		p = r.pods[0]
		r.old = p
		p.condition(false, true)
	case 3:
		p = r.old
		gone = r.remove(p)
		r.left--
	}
	r.step = (r.step + 1) % 4
	e := c.write(r.service, p.slice, at)
	e.Deleted = gone
	return e
}

// write makes a new version of a slice.
func (c *Cluster) write(s *service, sl *slice, at time.Time) Event {
	sl.version++
	sl.triggered = at
	return Event{Slice: c.slice(s, sl)}
}
