package conntrack

import (
	"net/netip"
	"time"

	"github.com/vmapd/vmapd/model"
)

// A host that has a frontend's address, or had it, may answer a client after the client's flow
// was deleted. The kernel takes the answer for the first packet of a new flow, from the frontend
// to the client, in which the client's next packets are replies: no rule ever sees them, and
// the client stays with that host. Another look finds such flows.
const (
	firstLook = time.Second // after a pass; the time between two looks doubles
	lookFor   = time.Minute // after the flow was deleted
	// mostAnswers bounds the memory; others are found by the hourly pass, unless the frontend is
	// on the node itself.
	mostAnswers = 4096
)

// answer is a UDP flow from a frontend to a client.
type answer struct{ frontend, client netip.AddrPort }

// lateAnswers are the answers to flows that were deleted.
type lateAnswers struct {
	until map[answer]time.Time
	look  time.Time // when to look for them next; zero: there are none
	pause time.Duration
}

// due returns the frontends of the answers to look for now. It forgets those whose time is over,
// and those of addresses that nobody owns any more.
func (l *lateAnswers) due(now time.Time, owned func(model.VIP) bool) []model.VIP {
	if l.look.IsZero() || now.Before(l.look) {
		return nil
	}
	var list []model.VIP
	for a, until := range l.until {
		if vip := vipOf(a.frontend); now.Before(until) && owned(vip) {
			list = append(list, vip)
		} else {
			delete(l.until, a)
		}
	}
	if len(list) == 0 {
		l.look = time.Time{}
	}
	return list
}

// expected returns a copy of the answers, as they change during a pass; nil if there are none.
func (l *lateAnswers) expected() map[answer]struct{} {
	if len(l.until) == 0 {
		return nil
	}
	all := make(map[answer]struct{}, len(l.until))
	for a := range l.until {
		all[a] = struct{}{}
	}
	return all
}

// note notes the flows that a pass has deleted.
func (l *lateAnswers) note(r *rules) {
	for _, a := range r.ended {
		if l.until == nil {
			l.until = map[answer]time.Time{}
		}
		if _, known := l.until[a]; known || len(l.until) < mostAnswers {
			l.until[a] = r.now.Add(lookFor)
		}
	}
	switch {
	case len(r.ended) > 0:
		l.pause = firstLook
	case !l.look.IsZero() && !r.now.Before(l.look):
		l.pause *= 2
	default:
		return
	}
	l.look = r.now.Add(l.pause)
}

// note notes that an untranslated UDP flow, which is stale, is being deleted.
func (r *rules) note(f *flow) {
	if f.protocol != model.UDP || f.translated || len(r.ended) == mostAnswers {
		return
	}
	a := answer{f.dest, f.source}
	_, known := lookup(r.frontends, r.nodePortAddrs, vipOf(f.dest))
	if _, early := lookup(r.early, r.nodePortAddrs, vipOf(f.dest)); !known && !early {
		a = answer{f.source, f.dest}
	}
	r.ended = append(r.ended, a)
}
