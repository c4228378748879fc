package conntrack

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/vmapd/vmapd/model"
)

// family has the state of one IP family, and its pending work.
type family struct {
	applied *model.FamilySnapshot // in the dataplane; nil: none yet
	begun   *model.FamilySnapshot // that a round since applied has begun to apply; nil: none
	refused map[model.ServicePortName]bool
	held    map[model.ServicePortName]bool // refused at some time since a pass began

	former  former // since the last complete pass
	failed  former // of rounds since applied that failed: it may be in force in part
	leaving map[leaver]departure
	todo    work
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

// only returns the protocol of the flows that a pass looks at; 0: several. UDP's are few where connections are many.
func (w work) only() model.Protocol {
	if w == (work{udp: true}) {
		return model.UDP
	}
	return 0
}

// former is what service ports of UDP had.
type former struct {
	frontends map[model.VIP]model.ServicePortName
	addrs     map[netip.Addr]bool // node-port addresses
}

func (f *former) add(sp *model.ServicePort, addrs []netip.Addr) {
	if f.frontends == nil {
		f.frontends, f.addrs = map[model.VIP]model.ServicePortName{}, map[netip.Addr]bool{}
	}
	for vip := range vips(sp) {
		f.frontends[vip] = sp.Name
	}
	for _, a := range addrs {
		f.addrs[a] = true
	}
}

func (f *former) addAll(more former) {
	f.add(nil, nil)
	maps.Copy(f.frontends, more.frontends)
	maps.Copy(f.addrs, more.addrs)
}

// nothing is the snapshot before the first.
var nothing = &model.FamilySnapshot{Settings: &model.Settings{}}

// fail notes what differs in a snapshot that a round failed to apply.
func (f *family) fail(s *model.FamilySnapshot) {
	f.failed.add(nil, s.NodePortAddrs)
	for c := range s.ServicePortChanges(cmp.Or(f.applied, nothing)) {
		if c.New != nil && c.New.Name.Protocol == model.UDP {
			f.failed.add(c.New, nil)
		}
	}
}

// take notes the changes since the snapshot before. Its cost depends on their number. The kernel has refused
// some service ports.
func (f *family) take(s *model.FamilySnapshot, refused map[model.ServicePortName]bool, now time.Time) {
	old := f.applied
	if old == nil {
		old = nothing
		f.leaving = map[leaver]departure{}
		// Services may have been deleted before the daemon started: their cluster IPs are nobody else's.
		f.todo.add(work{udp: true, early: true, strays: true})
	}
	for name := range f.refused {
		f.todo.udp = f.todo.udp || !refused[name]
	}
	if f.failed.frontends != nil || !slices.Equal(old.NodePortAddrs, s.NodePortAddrs) {
		f.todo.udp = true
	}
	f.former.addAll(f.failed)
	f.former.add(nil, old.NodePortAddrs)
	f.applied, f.refused, f.begun, f.failed = s, refused, nil, former{}
	if f.held == nil {
		f.held = map[model.ServicePortName]bool{}
	}
	maps.Copy(f.held, refused)
	for c := range s.ServicePortChanges(old) {
		f.change(c, now)
	}
}

func (f *family) change(c model.Change[*model.ServicePort], now time.Time) {
	before, after := forgetting(c.Old), forgetting(c.New)
	switch sp := cmp.Or(after, before); {
	case sp == nil:
	case sp.Name.Protocol != model.UDP:
		f.leave(before, after, c.New != nil, now)
	case !onlyMore(before, after):
		f.former.add(before, nil)
		f.todo.udp = f.todo.udp || !f.refused[sp.Name]
	}
}

// onlyMore reports whether no flow can be stale: the endpoints before still serve, and the frontends are the same. A
// service port without endpoints is different: a sender may have begun before its packets were rejected.
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
	p.former, f.former, f.held = f.former, former{}, maps.Clone(f.refused)
	return p
}

// end notes the result of a pass. The former frontends of service ports that were refused meanwhile had rules.
func (f *family) end(p *pass, err error) {
	if err == nil {
		maps.DeleteFunc(p.former.frontends, func(_ model.VIP, name model.ServicePortName) bool { return !f.held[name] })
	}
	if err != nil || len(f.held) > 0 {
		p.former.addAll(f.former) // what is newer has priority
		f.former = p.former
	}
	if err != nil {
		f.todo.add(p.work)
		return
	}
	maps.DeleteFunc(f.leaving, func(_ leaver, d departure) bool { return f.isDue(d, p.now) })
}

// leaver is an endpoint of TCP or SCTP that a frontend no longer leads to. Its connections may stay for a
// while. The zero endpoint stands for all that left before this process knew the frontend.
type leaver struct {
	frontend model.VIP
	endpoint netip.AddrPort
}

// departure is of a service port, and until when connections to the leaver may stay.
type departure struct {
	from  model.ServicePortName
	until time.Time
}

// leave notes the endpoints of TCP or SCTP that have ceased to serve. If the Service stays and no longer asks
// for the end of connections, they may go on.
func (f *family) leave(before, after *model.ServicePort, stays bool, now time.Time) {
	sp := cmp.Or(after, before)
	if after == nil && stays {
		maps.DeleteFunc(f.leaving, func(_ leaver, d departure) bool { return d.from == sp.Name })
		return
	}
	grace, _ := sp.EndsStale()
	d := departure{sp.Name, now.Add(grace)}
	if before == nil {
		for vip := range vips(after) {
			f.leaving[leaver{frontend: vip}] = d
		}
	}
	for a := range serving(before) {
		if after.Serves(a) {
			continue
		}
		for vip := range vips(before) {
			f.leaving[leaver{vip, a}] = d
		}
	}
}

// isDue reports whether connections to a leaver must end. While the kernel refuses the service port, its old
// rules are in force.
func (f *family) isDue(d departure, now time.Time) bool {
	return !now.Before(d.until) && !f.refused[d.from]
}

// next returns when the next connections must end; zero: none wait for it.
func (f *family) next() (at time.Time) {
	for _, d := range f.leaving {
		if !f.refused[d.from] && (at.IsZero() || d.until.Before(at)) {
			at = d.until
		}
	}
	return at
}

// departed returns when an endpoint left a frontend, or the node port.
func (f *family) departed(vip model.VIP, endpoint netip.AddrPort) (d departure, ok bool) {
	d, ok = f.leaving[leaver{vip, endpoint}]
	if !ok && slices.Contains(f.applied.NodePortAddrs, vip.Addr) {
		d, ok = f.leaving[leaver{nodePort(vip), endpoint}]
	}
	return d, ok
}
