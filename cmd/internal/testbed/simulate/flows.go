package simulate

import (
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/model"
)

// flow is an entry of the kernel's connection tracking, of UDP.
type flow struct {
	model.Connection // its first packet
	id               uint32
	to               netip.AddrPort // who answers
	daemon           int            // that had programmed the table when it began; 0: no daemon may know its frontend
}

// mostFlows are those that the kernel has at a time. The oldest one ends for a new one.
const mostFlows = 60

// track notes the flow of a packet. Its sender never pauses, so it lasts until the daemon deletes it. The caller holds
// the mutex.
func (w *world) track(c model.Connection, to netip.AddrPort) {
	if c.Protocol != model.UDP {
		return
	}
	w.flowID++
	const first, ports = 1024, 60000
	c.SourcePort = uint16(first + w.flowID%ports)
	w.note("flow %d from %v to %v is answered by %v", w.flowID, c.Source, c.Dest, to)
	w.flows = append(w.flows, flow{c, w.flowID, to, w.programmed})
	if len(w.flows) > mostFlows {
		w.flows = slices.Delete(w.flows, 0, 1)
	}
}

func (f flow) isTranslated() bool { return f.to != f.Dest }

// isStale reports whether a flow must end by a snapshot: an endpoint that does not serve answers it, or no Service has
// its destination any more. A flow that was never translated is not vmapd's until a Service has its destination.
func (f flow) isStale(s *model.Snapshot) bool {
	port := model.Decide(s, f.Connection).Port
	if port == nil {
		return f.isTranslated()
	}
	serves := slices.ContainsFunc(port.Endpoints, func(e model.Endpoint) bool { return e.Addr == f.to })
	return !serves && !slices.Contains(port.Draining, f.to)
}

// untrack deletes a flow at the daemon's request, and reports whether there was one. It must be stale by one of the
// possible snapshots. One that was never translated may have been stale when the pass began, and its next packet makes
// it again. The caller holds the mutex.
func (w *world) untrack(id uint32) bool {
	i := slices.IndexFunc(w.flows, func(f flow) bool { return f.id == id })
	if i < 0 {
		return false
	}
	f := w.flows[i]
	w.flows = slices.Delete(w.flows, i, i+1)
	w.note("flow %d to %v ends", id, f.Dest)
	mayEnd := func(s *model.Snapshot) bool { return s == nil || f.isStale(s) }
	if f.isTranslated() && !slices.ContainsFunc(w.between, mayEnd) {
		w.fail("flow %+v is deleted, and %v serves", f.Connection, f.to)
	}
	return true
}

// mustHaveEnded checks that no flow is stale. A daemon knows only the frontends of its own snapshots: flows to others
// may stay if they began before it had programmed the tables, or before somebody else changed them. The caller holds
// the mutex.
func (w *world) mustHaveEnded(family model.Family, s *model.Snapshot) {
	for _, f := range w.flows {
		if model.FamilyOf(f.Dest.Addr()) != family || !f.isStale(s) {
			continue
		}
		if d := model.Decide(s, f.Connection); f.daemon == w.daemons || d.Port != nil {
			w.fail("flow %d, %+v is still answered by %v, which does not serve: %+v", f.id, f.Connection, f.to, d)
		}
	}
}
