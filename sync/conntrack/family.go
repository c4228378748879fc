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
	late      lateAnswers
	// coming are frontends that rounds since applied have begun to change, with the service ports that
	// they give them, and comingAddrs are the node-port addresses of the last one.
	coming      map[model.VIP][]*model.ServicePort
	comingAddrs []netip.Addr
	failed      []*model.FamilySnapshot // of rounds since applied
	behind      refused
	todo        todo
}

// todo has the frontends for the next pass.
type todo struct {
	frontends map[model.VIP]holder // with their present or former service ports
	all       bool                 // all frontends
	strays    bool                 // also flows to unused cluster IPs
	early     bool                 // also connections that began while there were no rules
	opened    bool                 // a frontend is new: its address may be a host's that answers
}

// holder is the service port that has, or had, a frontend.
type holder struct {
	name model.ServicePortName
	// endpoints, unless nil, are all those that the frontend can have had: if nobody has it any
	// more, flows that others answer are not ours. Another program may translate the address.
	endpoints map[netip.AddrPort]struct{}
}

func (t *todo) empty() bool { return len(t.frontends) == 0 && !t.all && !t.early }

func (t *todo) add(name model.ServicePortName, vips iter.Seq[model.VIP]) {
	for vip := range vips {
		t.hold(vip, holder{name: name})
	}
}

// hold adds a frontend. Of two holders the later one has the name, and both have endpoints.
func (t *todo) hold(vip model.VIP, h holder) {
	if t.frontends == nil {
		t.frontends = map[model.VIP]holder{}
	}
	if earlier, ok := t.frontends[vip]; ok {
		h.endpoints = union(earlier.endpoints, h.endpoints)
	}
	t.frontends[vip] = h
}

// union returns the endpoints of both; nil stands for all.
func union(a, b map[netip.AddrPort]struct{}) map[netip.AddrPort]struct{} {
	if a == nil || b == nil {
		return nil
	}
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// merge adds the work of a failed pass. For a frontend in both, the later service port wins.
func (t *todo) merge(failed todo) {
	later := t.frontends
	t.frontends = failed.frontends
	for vip, h := range later {
		t.hold(vip, h)
	}
	t.all, t.strays, t.opened = t.all || failed.all, t.strays || failed.strays, t.opened || failed.opened
	t.early = t.early || failed.early
}

// leavers are endpoints of a service port that no longer serve, with TCP or SCTP connections
// that may stay for a while.
type leavers struct {
	until     map[netip.AddrPort]time.Time // see rule
	frontends map[model.VIP]struct{}       // of the service port while they served
}

// take notes the changes since the snapshot before, but for service ports that the kernel refused. Its cost depends on their
// number. before is for the first snapshot: see Options.Before.
func (f *family) take(s *model.FamilySnapshot, ports map[model.ServicePortName]bool, before map[model.VIP][]netip.AddrPort, now time.Time) {
	old := f.applied
	f.applied = s
	f.coming, f.comingAddrs = nil, nil
	if old == nil {
		f.frontends = map[model.VIP]*model.ServicePort{}
		f.leaving = map[model.ServicePortName]leavers{}
		// Services may have been deleted before the daemon started.
		f.todo.all, f.todo.strays, f.todo.early = true, true, true
		old = &model.FamilySnapshot{}
	} else if !slices.Equal(old.NodePortAddrs, s.NodePortAddrs) {
		f.todo.all = true
		f.closeNodePorts(lost(old.NodePortAddrs, s.NodePortAddrs))
	}
	f.catchUp(ports, now)
	for c := range s.ServicePortChanges(old) {
		if !f.behind.leaves(c, ports) {
			f.change(c, now)
		}
	}
	f.undo(s, now)
	theirs := f.behind.frontends(s)
	for vip, endpoints := range before {
		if _, kept := lookup(theirs, s.NodePortAddrs, vip); !kept && !f.owns(vip) {
			f.todo.hold(vip, holder{endpoints: known(endpoints)})
		}
	}
}

// known returns the endpoints that a frontend had before this process; nil if there may be others, see Options.Before.
func known(endpoints []netip.AddrPort) map[netip.AddrPort]struct{} {
	if slices.Contains(endpoints, netip.AddrPort{}) {
		return nil
	}
	return setOf(slices.Values(endpoints))
}

// closeNodePorts adds the UDP node ports on addresses that ceased to be node-port addresses.
func (f *family) closeNodePorts(addrs []netip.Addr) {
	if len(addrs) == 0 {
		return
	}
	for vip, sp := range f.frontends {
		if isNodePort(vip) {
			f.closeNodePort(addrs, vip, holder{sp.Name, had(sp)})
		}
	}
	f.closePending(addrs)
}

// had returns the endpoints of flows to a service port; nil if there may be others. With session affinity a client may be remembered
// with one that is gone.
func had(sp *model.ServicePort) map[netip.AddrPort]struct{} {
	if sp.Affinity > 0 {
		return nil
	}
	return setOf(serving(sp))
}

// closePending does so for the node ports that wait for a pass: flows may go to endpoints that
// they no longer have.
func (f *family) closePending(addrs []netip.Addr) {
	for vip, h := range maps.Clone(f.todo.frontends) {
		if isNodePort(vip) {
			f.closeNodePort(addrs, vip, h)
		}
	}
}

func (f *family) closeNodePort(addrs []netip.Addr, vip model.VIP, h holder) {
	for _, vip.Addr = range addrs {
		f.todo.hold(vip, h)
	}
}

func isNodePort(vip model.VIP) bool { return vip.Protocol == model.UDP && vip.Addr.IsUnspecified() }

// lost returns the addresses of before that after lacks. Both are sorted.
func lost(before, after []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(before), func(a netip.Addr) bool { return has(after, a) })
}

// has reports whether a sorted list has an address.
func has(sorted []netip.Addr, a netip.Addr) bool {
	_, ok := slices.BinarySearchFunc(sorted, a, netip.Addr.Compare)
	return ok
}

func setOf[K comparable](list iter.Seq[K]) map[K]struct{} {
	set := map[K]struct{}{}
	for k := range list {
		set[k] = struct{}{}
	}
	return set
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
			f.todo.opened = f.todo.opened || after != nil && !sameFrontends(before, after)
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
	if !sameFrontends(before, after) {
		return false
	}
	for a := range serving(before) {
		if !after.Serves(a) {
			return false
		}
	}
	return true
}

// sameFrontends reports whether the frontends are the same; after is not nil.
func sameFrontends(before, after *model.ServicePort) bool {
	sameVIP := func(a, b model.Frontend) bool { return a.VIP == b.VIP }
	return before != nil && slices.EqualFunc(before.Frontends, after.Frontends, sameVIP)
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
		if !after.Serves(a) {
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
	for _, vip := range f.late.due(now, f.owns) {
		f.todo.hold(vip, holder{})
	}
	if look := f.late.look; !look.IsZero() && (next.IsZero() || look.Before(next)) {
		next = look
	}
	return next
}

// owns reports whether a service port has a frontend.
func (f *family) owns(vip model.VIP) bool {
	_, ok := lookup(f.frontends, f.applied.NodePortAddrs, vip)
	return ok
}

// begin takes the pending work. The rules are nil if there is none.
func (f *family) begin(now time.Time) (*rules, todo) {
	f.due(now)
	if f.todo.empty() {
		return nil, todo{}
	}
	taken := f.todo
	f.todo = todo{}
	r := &rules{
		now: now, frontends: map[model.VIP]rule{},
		nodeAddrs: f.applied.NodeAddrs, nodePortAddrs: f.applied.NodePortAddrs, expected: f.late.expected(),
	}
	r.reversed = taken.all || taken.opened || len(r.expected) > 0
	if taken.all {
		for vip, sp := range f.frontends {
			r.frontends[vip] = f.rule(vip, sp.Name)
		}
	}
	for vip, h := range taken.frontends {
		to := f.rule(vip, h.name)
		to.endpoints = h.endpoints
		r.frontends[vip] = to
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
	if taken.early {
		r.early = owners(f.applied)
	}
	return r, taken
}

// owners returns all frontends with their service ports.
func owners(s *model.FamilySnapshot) map[model.VIP]*model.ServicePort {
	all := map[model.VIP]*model.ServicePort{}
	for sp := range s.ServicePorts() {
		for vip := range vips(sp) {
			all[vip] = sp
		}
	}
	return all
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

// end notes the result of a pass. One that has spared flows is done again, in case the newer rules never come.
func (f *family) end(r *rules, taken todo, err error) {
	f.late.note(r)
	if err != nil || r.spared {
		f.todo.merge(taken)
		f.closePending(lost(r.nodePortAddrs, f.applied.NodePortAddrs))
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

// serving yields the endpoints that serve, see model.ServicePort.Serves; none if sp is nil.
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
