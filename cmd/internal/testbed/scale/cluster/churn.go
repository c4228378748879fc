package cluster

import (
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// Event is one write to the API server.
type Event struct {
	Object  runtime.Object // a whole new version; of what is deleted, the last one
	Deleted bool
}

// Replace replaces the oldest endpoint of one Service by a new one that is ready, in one
// write. It returns the write and the new endpoint's address, which no endpoint had before.
// The Services take turns; Churn never changes them.
func (c *Cluster) Replace(at time.Time) (Event, netip.Addr) {
	s := c.probes[c.probed%len(c.probes)]
	c.probed++
	old, p := s.pods[0], c.newPod()
	p.condition(true, false)
	sl := old.slices[0]
	p.slices = old.slices
	s.pods = append(slices.Delete(s.pods, 0, 1), p)
	i := slices.Index(sl.pods, old)
	sl.pods = append(slices.Delete(sl.pods, i, i+1), p)
	return c.write(s, 0, sl, at), p.address(0)
}

// rollout is a rolling update of a Service.
type rollout struct {
	*service
	left     int  // pods that are to be replaced, with the one under way
	recreate bool // the old one goes first, as with maxSurge 0
	step     int
	old, new *pod
}

// parallel is the number of Services that are updated at a time.
const parallel = 50

// Churn takes the next step of a rolling update: a pod comes, is ready later, another one is
// terminating, and is gone later. It returns the writes of one step, one for each family that
// the Service is in; there are none if no Service has endpoints.
func (c *Cluster) Churn(at time.Time) []Event {
	for len(c.rollouts) < min(parallel, len(c.restless)) {
		c.rollouts = append(c.rollouts, c.newRollout())
	}
	if len(c.rollouts) == 0 {
		return nil
	}
	i := c.rng.IntN(len(c.rollouts))
	r := c.rollouts[i]
	events := c.advance(r, at)
	if r.left == 0 {
		c.rollouts[i] = c.newRollout()
	}
	return events
}

// newRollout picks a Service that is not being updated.
func (c *Cluster) newRollout() *rollout {
	for {
		s := c.restless[c.rng.IntN(len(c.restless))]
		if !slices.ContainsFunc(c.rollouts, func(r *rollout) bool { return r.service == s && r.left > 0 }) {
			return &rollout{service: s, left: len(s.pods), recreate: c.rng.IntN(5) == 0}
		}
	}
}

// advance takes one step with a Service: of four for each pod.
func (c *Cluster) advance(r *rollout, at time.Time) []Event {
	steps := [...]func(*rollout) (*pod, [len(families)]*slice){c.comes, ready, terminates, goes}
	const back = 2
	step := r.step
	if r.recreate {
		step = (step + back) % len(steps)
	}
	p, gone := steps[step](r)
	if r.step++; r.step == len(steps) {
		r.step = 0
		r.left--
	}
	var events []Event
	for f := range r.families() {
		e := c.write(r.service, f, p.slices[f], at)
		e.Deleted = gone[f] != nil
		events = append(events, e)
	}
	return events
}

func (c *Cluster) comes(r *rollout) (*pod, [len(families)]*slice) {
	r.new = c.newPod()
	c.add(r.service, r.new)
	return r.new, [len(families)]*slice{}
}

func ready(r *rollout) (*pod, [len(families)]*slice) {
	r.new.condition(true, false)
	return r.new, [len(families)]*slice{}
}

func terminates(r *rollout) (*pod, [len(families)]*slice) {
	r.old = r.pods[0]
	r.old.condition(false, true)
	return r.old, [len(families)]*slice{}
}

func goes(r *rollout) (*pod, [len(families)]*slice) { return r.old, r.remove(r.old) }

// write makes a new version of a slice.
func (c *Cluster) write(s *service, f int, sl *slice, at time.Time) Event {
	sl.version++
	sl.triggered = at
	return Event{Object: c.slice(s, f, sl)}
}
