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

// family has the state of one IP family, and its pending work.
type family struct {
	applied *model.FamilySnapshot // in the dataplane; nil: none yet
	// frontends are those of the service ports with model.ServicePort.EndsStale.
	frontends map[model.VIP]*model.ServicePort
	leaving   map[model.ServicePortName]leavers
	todo      todo
}

// todo has the frontends for the next pass.
type todo struct {
	frontends map[model.VIP]model.ServicePortName // with their present or former service ports
	all       bool                                // all frontends
	strays    bool                                // also flows to unused cluster IPs
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

// merge adds the work of a failed pass. For a frontend in both, the later service port wins.
func (t *todo) merge(failed todo) {
	if failed.frontends != nil {
		maps.Copy(failed.frontends, t.frontends)
		t.frontends = failed.frontends
	}
	t.all, t.strays = t.all || failed.all, t.strays || failed.strays
}

// leavers are endpoints of a service port that no longer serve, with TCP or SCTP connections
// that may stay for a while.
type leavers struct {
	until     map[netip.AddrPort]time.Time // see rule
	frontends map[model.VIP]struct{}       // of the service port while they served
}

// take notes the changes since the snapshot before. Its cost depends on their number.
func (f *family) take(s *model.FamilySnapshot, now time.Time) {
	old := f.applied
	f.applied = s
	if old == nil {
		f.frontends = map[model.VIP]*model.ServicePort{}
		f.leaving = map[model.ServicePortName]leavers{}
		// Services may have been deleted before the daemon started.
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
		// Changes come in any order: it may belong to another service port by now.
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
		delete(f.leaving, sp.Name) // from now on their connections may stay
	default:
		f.leave(before, after, now)
	}
}

// onlyMore reports whether no flow can be stale: the endpoints before still serve, and the
// frontends are the same. A service port without endpoints is different: a sender may have
// begun before its packets were rejected.
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

// leave notes the time at which endpoints of TCP or SCTP ceased to serve.
func (f *family) leave(before, after *model.ServicePort, now time.Time) {
	sp := cmp.Or(after, before)
	grace, _ := sp.EndsStale()
	l, ok := f.leaving[sp.Name]
	if !ok {
		l = leavers{until: map[netip.AddrPort]time.Time{}, frontends: map[model.VIP]struct{}{}}
	}
	if before == nil {
		// Earlier leavers are unknown: all get the grace period from now on.
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

// due adds leavers after their grace period to the work, and returns the end of the next
// period, or zero if there is none.
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

// begin takes the pending work. The rules are nil if there is none.
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
		// Another service port may have a frontend with the node's address and the node
		// port's number. Its flows are not the node port's.
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

// rule returns the rule for a frontend that a service port has, or had.
func (f *family) rule(vip model.VIP, name model.ServicePortName) rule {
	if owner, ok := lookup(f.frontends, f.applied.NodePortAddrs, vip); ok {
		return rule{port: owner, until: f.until(owner.Name)}
	}
	r := rule{gone: true, until: f.until(name)}
	if vip.Protocol != model.UDP {
		r.port, _ = f.applied.ServicePort(name)
	}
	return r
}

// until returns a copy, as f changes during a pass.
func (f *family) until(name model.ServicePortName) map[netip.AddrPort]time.Time {
	return maps.Clone(f.leaving[name].until)
}

// end notes the result of a pass.
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

// forgetting returns sp if its stale flows are deleted, and nil otherwise.
func forgetting(sp *model.ServicePort) *model.ServicePort {
	if sp != nil {
		if _, ok := sp.EndsStale(); ok {
			return sp
		}
	}
	return nil
}

// vips yields the addresses of a service port's frontends; none if it is nil.
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
		slices.Values(sp.Draining)(yield)
	}
}
