package conntrack

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/vmapd/vmapd/model"
)

// family is what is known about one IP family, and what is to do there.
type family struct {
	applied *model.FamilySnapshot // what the dataplane does; nil: nothing yet
	// frontends are those of the service ports that forget (model.ServicePort.EndsStale).
	frontends map[model.VIP]*model.ServicePort
	leaving   map[model.ServicePortName]*leavers
	todo      todo
}

// todo is what a pass has to look at.
type todo struct {
	frontends map[model.VIP]model.ServicePortName // and who has or had them
	all       bool                                // all that there are, too
	strays    bool                                // and flows to cluster IPs that nobody has
}

func (t *todo) empty() bool { return len(t.frontends) == 0 && !t.all }

func (t *todo) add(name model.ServicePortName, vips iter.Seq[model.VIP]) {
	if t.frontends == nil {
		t.frontends = map[model.VIP]model.ServicePortName{}
	}
	for vip := range vips {
		t.frontends[vip] = name
	}
}

// merge takes back what could not be done. What came later says better whose a frontend was.
func (t *todo) merge(failed todo) {
	if failed.frontends != nil {
		maps.Copy(failed.frontends, t.frontends)
		t.frontends = failed.frontends
	}
	t.all, t.strays = t.all || failed.all, t.strays || failed.strays
}

// leavers are endpoints of a service port that no longer serve, but whose TCP or SCTP
// connections may go on for a while.
type leavers struct {
	until     map[netip.AddrPort]time.Time // see rule
	frontends map[model.VIP]struct{}       // by which they were reached
}

// take notes what differs from what was applied before. Its cost follows that.
func (f *family) take(s *model.FamilySnapshot, now time.Time) {
	old := f.applied
	f.applied = s
	if old == nil {
		f.frontends = map[model.VIP]*model.ServicePort{}
		f.leaving = map[model.ServicePortName]*leavers{}
		// Services may have been deleted while nobody watched.
		f.todo.all, f.todo.strays = true, true
		old = &model.FamilySnapshot{}
	} else if !slices.Equal(old.NodePortAddrs, s.NodePortAddrs) {
		f.todo.all = true
	}
	for c := range s.ServicePortChanges(old) {
		f.change(c, now)
	}
}

func (f *family) change(c model.Change[*model.ServicePort], now time.Time) {
	before, after := forgetting(c.Old), forgetting(c.New)
	for vip := range vips(before) {
		// Changes come in any order: it may be another's by now.
		if owner := f.frontends[vip]; owner != nil && owner.Name == before.Name {
			delete(f.frontends, vip)
		}
	}
	for vip := range vips(after) {
		f.frontends[vip] = after
	}
	switch sp := cmp.Or(after, before); {
	case sp == nil:
	case sp.Name.Protocol == model.UDP:
		if !onlyMore(before, after) {
			f.todo.add(sp.Name, vips(before))
			f.todo.add(sp.Name, vips(after))
		}
	case after == nil && c.New != nil:
		delete(f.leaving, sp.Name) // from now on they may go on as long as they like
	default:
		f.leave(before, after, now)
	}
}

// onlyMore reports whether there is nothing that could have become stale: the endpoints that
// were there still serve, and the frontends are the same. A service port without endpoints
// is different: somebody may have sent to it before it refused.
func onlyMore(before, after *model.ServicePort) bool {
	if before == nil || after == nil || len(before.Endpoints)+len(before.Draining) == 0 {
		return false
	}
	sameVIP := func(a, b model.Frontend) bool { return a.VIP == b.VIP }
	if !slices.EqualFunc(before.Frontends, after.Frontends, sameVIP) {
		return false
	}
	for a := range serving(before) {
		if !serves(after, a) {
			return false
		}
	}
	return true
}

// leave notes since when endpoints of TCP or SCTP no longer serve.
func (f *family) leave(before, after *model.ServicePort, now time.Time) {
	sp := cmp.Or(after, before)
	grace, _ := sp.EndsStale()
	l := f.leaving[sp.Name]
	if l == nil {
		l = &leavers{until: map[netip.AddrPort]time.Time{}, frontends: map[model.VIP]struct{}{}}
	}
	if before == nil {
		// Who left earlier is not known, so that they all get the time from now on.
		l.until[netip.AddrPort{}] = now.Add(grace)
	}
	for a := range serving(before) {
		if after == nil || !serves(after, a) {
			l.until[a] = now.Add(grace)
		}
	}
	for a := range serving(after) {
		delete(l.until, a)
	}
	if len(l.until) == 0 {
		delete(f.leaving, sp.Name)
		return
	}
	for _, side := range []*model.ServicePort{before, after} {
		for vip := range vips(side) {
			l.frontends[vip] = struct{}{}
		}
	}
	f.leaving[sp.Name] = l
}

// due has those looked at whose time is over, and returns when it is for the next. The zero
// value means never.
func (f *family) due(now time.Time) (next time.Time) {
	for name, l := range f.leaving {
		for _, until := range l.until {
			if !now.Before(until) {
				f.todo.add(name, maps.Keys(l.frontends))
			} else if next.IsZero() || until.Before(next) {
				next = until
			}
		}
	}
	return next
}

// begin takes what is to do. It is nil if that is nothing.
func (f *family) begin(now time.Time) (*rules, todo) {
	f.due(now)
	if f.todo.empty() {
		return nil, todo{}
	}
	taken := f.todo
	f.todo = todo{}
	r := &rules{now: now, frontends: map[model.VIP]rule{}, nodePortAddrs: f.applied.NodePortAddrs}
	if taken.all {
		for vip, sp := range f.frontends {
			r.frontends[vip] = f.rule(vip, sp.Name)
		}
	}
	for vip, name := range taken.frontends {
		r.frontends[vip] = f.rule(vip, name)
		if !vip.Addr.IsUnspecified() {
			continue
		}
		// Somebody's address may be on the node, with a node port's number as its port.
		// Then its flows are not the node port's.
		for _, a := range f.applied.NodePortAddrs {
			at := model.VIP{Addr: a, Protocol: vip.Protocol, Port: vip.Port}
			if sp, ok := f.frontends[at]; ok {
				r.frontends[at] = f.rule(at, sp.Name)
			}
		}
	}
	if taken.strays {
		r.strays = f.applied.ServiceCIDRs
	}
	return r, taken
}

// rule returns what holds for a frontend that a service port has, or had.
func (f *family) rule(vip model.VIP, name model.ServicePortName) rule {
	owner, ok := f.frontends[vip]
	if !ok && contains(f.applied.NodePortAddrs, vip.Addr) {
		owner, ok = f.frontends[model.VIP{Addr: model.FamilyOf(vip.Addr).Unspecified(), Protocol: vip.Protocol, Port: vip.Port}]
	}
	if ok {
		return rule{port: owner, until: f.until(owner.Name)}
	}
	r := rule{gone: true, until: f.until(name)}
	if vip.Protocol != model.UDP {
		r.port, _ = f.applied.ServicePort(name)
	}
	return r
}

// until returns a copy: f goes on changing.
func (f *family) until(name model.ServicePortName) map[netip.AddrPort]time.Time {
	if l := f.leaving[name]; l != nil {
		return maps.Clone(l.until)
	}
	return nil
}

// end takes note of how a pass ended.
func (f *family) end(r *rules, taken todo, err error) {
	if err != nil {
		f.todo.merge(taken)
		return
	}
	for name, l := range f.leaving {
		maps.DeleteFunc(l.until, func(_ netip.AddrPort, until time.Time) bool { return !r.now.Before(until) })
		if len(l.until) == 0 {
			delete(f.leaving, name)
		}
	}
}

// forgetting returns sp if it forgets, and else nil.
func forgetting(sp *model.ServicePort) *model.ServicePort {
	if sp != nil {
		if _, ok := sp.EndsStale(); ok {
			return sp
		}
	}
	return nil
}

// vips yields where a service port is reached; none if it is nil.
func vips(sp *model.ServicePort) iter.Seq[model.VIP] {
	return func(yield func(model.VIP) bool) {
		if sp == nil {
			return
		}
		for _, fe := range sp.Frontends {
			if !yield(fe.VIP) {
				return
			}
		}
	}
}

// serving yields the endpoints that serve, see serves; none if sp is nil.
func serving(sp *model.ServicePort) iter.Seq[netip.AddrPort] {
	return func(yield func(netip.AddrPort) bool) {
		if sp == nil {
			return
		}
		for _, e := range sp.Endpoints {
			if !yield(e.Addr) {
				return
			}
		}
		for _, a := range sp.Draining {
			if !yield(a) {
				return
			}
		}
	}
}
