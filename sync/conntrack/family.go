package conntrack

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/vmapd/vmapd/model"
)

// family has the state of one IP family, and its pending work.
type family struct {
	applied   *model.FamilySnapshot // in the dataplane; nil: none yet
	frontends owners                // of applied, if their stale flows are deleted
	refused   map[model.ServicePortName]bool

	// coming are those of service ports that rounds since applied have begun to change. If one of them failed,
	// its rules may be in force in part.
	coming      owners
	comingAddrs []netip.Addr // node-port addresses
	failed      bool

	// past are former owners of frontends, since the last pass began, and older those since the last complete pass.
	past, older owners
	leaving     map[leaver]departure
	todo        work
}

// work is what a pass looks for.
type work struct {
	udp     bool // flows of UDP
	streams bool // connections of TCP and SCTP
	early   bool // connections that began while there were no rules
	strays  bool // flows to unused cluster IPs
}

func (w *work) add(more work) {
	w.udp, w.streams = w.udp || more.udp, w.streams || more.streams
	w.early, w.strays = w.early || more.early, w.strays || more.strays
}

// nothing is the snapshot before the first.
var nothing = &model.FamilySnapshot{Settings: &model.Settings{}}

// expect notes what differs in a snapshot that a round begins to apply, or that it failed to apply.
func (f *family) expect(s *model.FamilySnapshot) {
	if f.coming == nil {
		f.coming = owners{}
	}
	for c := range s.ServicePortChanges(cmp.Or(f.applied, nothing)) {
		f.coming.add(forgetting(c.New))
	}
	for _, a := range s.NodePortAddrs {
		if !slices.Contains(f.comingAddrs, a) {
			f.comingAddrs = append(f.comingAddrs, a)
		}
	}
}

// take notes the changes since the snapshot before. Its cost depends on their number. The kernel has refused
// some service ports.
func (f *family) take(s *model.FamilySnapshot, refused map[model.ServicePortName]bool, now time.Time) {
	old := f.applied
	if old == nil {
		old = nothing
		f.frontends, f.past, f.older, f.leaving = owners{}, owners{}, owners{}, map[leaver]departure{}
		// Services may have been deleted before the daemon started: their cluster IPs are nobody else's.
		f.todo.add(work{udp: true, early: true, strays: true})
	}
	if f.failed {
		f.past.addAll(f.coming)
		f.todo.udp = true
	}
	for name := range f.refused {
		f.todo.udp = f.todo.udp || !refused[name]
	}
	if !slices.Equal(old.NodePortAddrs, s.NodePortAddrs) {
		f.todo.udp = true
	}
	f.closeNodePorts(slices.DeleteFunc(slices.Concat(old.NodePortAddrs, f.comingAddrs), func(a netip.Addr) bool {
		return slices.Contains(s.NodePortAddrs, a)
	}))
	f.applied, f.refused = s, refused
	f.coming, f.comingAddrs, f.failed = nil, nil, false
	for c := range s.ServicePortChanges(old) {
		f.change(c, now)
	}
}

func (f *family) closeNodePorts(addrs []netip.Addr) {
	if len(addrs) > 0 {
		for _, of := range []owners{f.frontends, f.coming, f.past, f.older} {
			f.past.closeNodePorts(of, addrs)
		}
	}
}

func (f *family) change(c model.Change[*model.ServicePort], now time.Time) {
	before, after := forgetting(c.Old), forgetting(c.New)
	f.frontends.remove(before)
	f.frontends.add(after)
	switch sp := cmp.Or(after, before); {
	case sp == nil:
	case sp.Name.Protocol != model.UDP:
		f.leave(before, after, c.New != nil, now)
	case !onlyMore(before, after):
		f.past.add(before)
		f.todo.udp = f.todo.udp || !f.refused[sp.Name]
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
		if !after.Serves(a) {
			return false
		}
	}
	return true
}

// keys are the frontends that a flow to an address may have, in the order of precedence.
func (f *family) keys(vip model.VIP) []model.VIP {
	if slices.Contains(f.applied.NodePortAddrs, vip.Addr) {
		return []model.VIP{vip, nodePort(vip)}
	}
	return []model.VIP{vip}
}

// audit adds all flows to the work.
func (f *family) audit() {
	f.todo.udp = true
	for vip := range f.frontends {
		f.todo.streams = f.todo.streams || vip.Protocol != model.UDP
	}
}

// begin takes the pending work; nil: there is none.
func (f *family) begin(now time.Time) *pass {
	p := &pass{family: f, now: now, work: f.todo}
	for _, d := range f.leaving {
		p.streams = p.streams || f.isDue(d, now)
	}
	if p.work == (work{}) {
		return nil
	}
	f.todo = work{}
	f.older.addAll(f.past)
	f.past = owners{}
	if p.early {
		p.all = owners{}
		for sp := range f.applied.ServicePorts() {
			p.all.add(sp)
		}
	}
	return p
}

// end notes the result of a pass. The former frontends of service ports that are refused still have rules.
func (f *family) end(p *pass, err error) {
	if err != nil {
		f.todo.add(p.work)
		return
	}
	for vip, list := range f.older {
		list = slices.DeleteFunc(list, func(sp *model.ServicePort) bool { return !f.refused[sp.Name] })
		if f.older[vip] = list; len(list) == 0 {
			delete(f.older, vip)
		}
	}
	for l, d := range f.leaving {
		if f.isDue(d, p.now) {
			delete(f.leaving, l)
		}
	}
}
