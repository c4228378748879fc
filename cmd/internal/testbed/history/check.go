package history

import (
	"net/netip"
	"slices"
	"time"

	"github.com/vmapd/vmapd/model"
)

// Rule is what makes an operation right, see the package's text.
type Rule string

// The rules. Decided is the strict one.
const (
	Decided  Rule = "decided"
	Flow     Rule = "flow of before"
	Swept    Rule = "answer lost with its flow"
	Returned Rule = "dropped on its return before the purge"
	Parts    Rule = "between two tables"
	Hooks    Rule = "between two hooks"
	Stalled  Rule = "the machine stalled"
	None     Rule = "CONTRADICTION"
)

// replyTime is how long a packet and its answer take, also on a busy machine.
const replyTime = time.Second

// stall is how long a datagram takes if the machine stalls.
const stall = replyTime / 4

// Check checks all operations.
func (h *History) Check() Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := Report{Snapshots: len(h.applied)}
	for _, p := range h.passes {
		r.Passes += len(p)
	}
	for _, o := range h.operations {
		rule := h.rule(o)
		r.count(o, rule, h.applying(o))
		if rule == None {
			r.contradict(o, h.describe(o))
		}
	}
	return r
}

// rule returns the first rule by which an operation is right, or None.
func (h *History) rule(o *Operation) Rule {
	switch {
	case h.decided(o):
		return Decided
	case h.stays(o):
		return Flow
	case h.swept(o):
		return Swept
	case h.returned(o):
		return Returned
	case h.parts(o):
		return Parts
	case h.hooks(o):
		return Hooks
	case h.stalled(o):
		return Stalled
	}
	return None
}

// decision is what the i-th snapshot decides about an operation.
func (h *History) decision(i int, o *Operation) model.Decision {
	return model.Decide(h.applied[i].snapshot, o.Connection)
}

// during returns the snapshots that may have decided about an operation.
func (h *History) during(o *Operation) []int {
	end := o.End
	if o.Result == Silent {
		end = min(end, o.Start+replyTime)
	}
	return h.inForce(o.Start, end)
}

func (h *History) decided(o *Operation) bool {
	return slices.ContainsFunc(h.during(o), func(i int) bool { return h.agrees(h.decision(i, o), o) })
}

// agrees reports whether an operation is what was decided.
func (h *History) agrees(d model.Decision, o *Operation) bool {
	switch o.Result {
	case Refused:
		return d.Verdict == model.Rejected || d.Verdict == model.NotOurs
	case Silent:
		return d.Verdict == model.Dropped || d.Verdict == model.NotOurs
	case Answered:
	}
	if h.Backend.Hashes && d.Verdict == model.Forwarded && d.Port.Affinity == 0 && d.Port.Slots(d.TrafficPolicy) > 0 {
		if t, ok := d.Chosen(); ok {
			d.Targets = []model.Target{t}
		}
	}
	return slices.ContainsFunc(d.Targets, func(t model.Target) bool {
		return t.Addr == o.Endpoint && h.source(o, t) == o.Seen
	})
}

// source is what an endpoint must see.
func (h *History) source(o *Operation, t model.Target) netip.Addr {
	if t.SNAT.Masquerade() {
		return h.Node[familyOf(o)]
	}
	return o.Source
}

// stays reports whether a datagram of a flow was right to stay where the one before it was.
func (h *History) stays(o *Operation) bool {
	if o.Before == nil || o.Result != Answered || o.Endpoint != o.Before.Endpoint || o.Seen != o.Before.Seen {
		return false
	}
	return slices.ContainsFunc(h.sincePass(o), func(i int) bool { return serves(h.decision(i, o), o.Endpoint) })
}

// sincePass returns the snapshots in force during an operation, or when the last pass began that ended before it.
func (h *History) sincePass(o *Operation) []int {
	from := time.Duration(0)
	for _, p := range h.passes[familyOf(o)] {
		if p.end <= o.Start {
			from = p.begin
		}
	}
	return h.between(from, o.End, told)
}

// told is when connection tracking's reconciler knew of an Apply.
func told(a applied) (at time.Duration, ok bool) { return a.told, a.observed }

// serves reports whether an endpoint of the service port still serves, if only those that it knows.
func serves(d model.Decision, a netip.AddrPort) bool {
	if d.Port == nil {
		return false
	}
	return slices.ContainsFunc(d.Port.Endpoints, func(e model.Endpoint) bool { return e.Addr == a }) || slices.Contains(d.Port.Draining, a)
}

// swept reports whether a pass may have deleted a flow whose answer was on its way.
func (h *History) swept(o *Operation) bool {
	if o.Result != Silent || o.Protocol != model.UDP {
		return false
	}
	return slices.ContainsFunc(h.passes[familyOf(o)], func(p pass) bool {
		return p.begin <= o.Start+replyTime && p.end >= o.Start && h.deletes(o, p)
	})
}

// deletes reports whether a pass may delete the flow of an operation: its endpoint has ceased to serve by what the pass
// knew when it began, and by what the reconciler knew when the flow was deleted. The second is no older than the
// snapshot by which the flow began, because flows to endpoints of newer snapshots are spared.
func (h *History) deletes(o *Operation, p pass) bool {
	at, now := h.between(p.begin, p.begin, told), h.between(p.begin, p.end, told)
	for _, b := range h.beginnings(o) {
		gone := func(i int) bool { return !serves(h.decision(i, o), b.endpoint) }
		if slices.ContainsFunc(at, gone) && slices.ContainsFunc(now, func(i int) bool { return i >= b.snapshot && gone(i) }) {
			return true
		}
	}
	return false
}

// beginning is an endpoint to which a flow may have been sent, and the snapshot that said so.
type beginning struct {
	endpoint netip.AddrPort
	snapshot int
}

func (h *History) beginnings(o *Operation) []beginning {
	var list []beginning
	if o.Before != nil {
		first := o.Before
		for first.Before != nil {
			first = first.Before
		}
		list = append(list, beginning{o.Before.Endpoint, h.during(first)[0]})
	}
	for _, i := range h.during(o) {
		for _, t := range h.decision(i, o).Targets {
			list = append(list, beginning{t.Addr, i})
		}
	}
	return list
}

// returned reports whether affinity remembered a client at an endpoint that an Apply removed: the rules dropped its
// datagram or, if the endpoint serves others still, it was answered there.
func (h *History) returned(o *Operation) bool {
	if h.Backend.Purge == 0 || o.Result == Refused || o.Result == Silent && o.Protocol != model.UDP {
		return false
	}
	for i := 1; i < len(h.applied); i++ {
		a := h.applied[i]
		if a.begin > o.End || !a.ended || a.end+h.Backend.Purge < o.Start {
			continue
		}
		before, now := h.decision(i-1, o), h.decision(i, o)
		switch {
		case len(now.Targets) == 0, before.Port == nil, before.Port.Affinity == 0:
		case o.Result == Silent && h.removed(o, before, now), isTarget(before, o.Endpoint) && serves(now, o.Endpoint):
			return true
		}
	}
	return false
}

// removed reports whether the client of an operation was at an endpoint that one decision has and the next one lacks.
func (h *History) removed(o *Operation, before, now model.Decision) bool {
	return slices.ContainsFunc(h.operations, func(other *Operation) bool {
		return other != o && other.Source == o.Source && other.Protocol == o.Protocol && other.Result == Answered &&
			isTarget(before, other.Endpoint) && !isTarget(now, other.Endpoint)
	})
}

func isTarget(d model.Decision, a netip.AddrPort) bool {
	return slices.ContainsFunc(d.Targets, func(t model.Target) bool { return t.Addr == a })
}

// overlaps reports whether some of an operation was during the i-th Apply.
func (h *History) overlaps(o *Operation, i int) bool {
	a := h.applied[i]
	return a.begin <= o.End && (!a.ended || a.end >= o.Start)
}

// applying reports whether some of an operation was during an Apply.
func (h *History) applying(o *Operation) bool {
	return slices.ContainsFunc(h.during(o), func(i int) bool { return h.overlaps(o, i) })
}

// parts reports whether an operation without an answer was in the middle of an Apply of several tables.
func (h *History) parts(o *Operation) bool {
	if !h.Backend.Tables || o.Result == Answered {
		return false
	}
	during := h.during(o)
	for n := 1; n < len(during); n++ {
		if h.overlaps(o, during[n]) && h.decision(during[n], o).Verdict != h.decision(during[n-1], o).Verdict {
			return true
		}
	}
	return false
}

// hooks reports whether the endpoint is that of one snapshot, and the source that of a neighbour whose Apply was under way.
func (h *History) hooks(o *Operation) bool {
	if o.Result != Answered {
		return false
	}
	during := h.during(o)
	for n := 1; n < len(during); n++ {
		if !h.overlaps(o, during[n]) {
			continue
		}
		a, b := h.decision(during[n-1], o), h.decision(during[n], o)
		if isTarget(a, o.Endpoint) && h.mayShow(b, o) || isTarget(b, o.Endpoint) && h.mayShow(a, o) {
			return true
		}
		if !h.Backend.Tables && isTarget(b, o.Endpoint) && masqueradesAll(a) && o.Seen == h.Node[familyOf(o)] {
			return true // whatever else the older one decided
		}
	}
	return false
}

// masqueradesAll reports whether the destination's packets are masqueraded if they are forwarded.
func masqueradesAll(d model.Decision) bool {
	return d.Frontend != nil && d.Frontend.SourceNAT == model.MasqueradeAlways
}

// mayShow reports whether some target of a decision sees what the endpoint saw. Where nothing is forwarded, nothing is
// masqueraded.
func (h *History) mayShow(d model.Decision, o *Operation) bool {
	if len(d.Targets) == 0 {
		return o.Seen == o.Source
	}
	return slices.ContainsFunc(d.Targets, func(t model.Target) bool { return h.source(o, t) == o.Seen })
}

// stalled reports whether the machine was so busy that silence says nothing.
func (h *History) stalled(o *Operation) bool {
	return o.Result == Silent && slices.ContainsFunc(h.stalls, func(s span) bool { return s.begin <= o.End && s.end >= o.Start })
}

func familyOf(o *Operation) model.Family { return model.FamilyOf(o.Dest.Addr()) }
