package conntrack

import (
	"net/netip"
	"slices"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// A pass has the rules of its beginning. Rounds go on meanwhile: a flow to an endpoint that one of them adds is stale
// by the rules that the pass has. If it were deleted, an answer that is on its way would be lost, and the flow's next
// packet would choose among the endpoints once more. So each round tells of its snapshot before the first flow
// can follow it, and a pass asks about what it would delete after the kernel has listed that.

var _ reconcile.Beginner = (*Reconciler)(nil)

// Begins implements reconcile.Beginner.
func (r *Reconciler) Begins(s *model.Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range model.Families {
		r.families[f].expect(s.Family(f))
	}
}

// mostComing bounds what rounds that fail one after the other leave: service ports of each frontend, and snapshots. The newest ones are kept.
const mostComing = 16

// expect notes what differs in a snapshot that a round begins to apply. Rounds that failed may be in force in part:
// what they had stays until one succeeds. Before the first one, there is no pass.
func (f *family) expect(s *model.FamilySnapshot) {
	if f.applied == nil {
		return
	}
	if f.coming == nil {
		f.coming = map[model.VIP][]*model.ServicePort{}
	}
	for c := range s.ServicePortChanges(f.applied) {
		sp := forgetting(c.New)
		for vip := range vips(sp) {
			list := f.coming[vip]
			if slices.Contains(list, sp) {
				continue
			}
			if len(list) == mostComing {
				list = slices.Delete(list, 0, 1)
			}
			f.coming[vip] = append(list, sp)
		}
	}
	f.comingAddrs = s.NodePortAddrs
}

// fail notes the snapshot of a round that failed. Some of it may be in force until a round succeeds, and have flows.
func (f *family) fail(s *model.FamilySnapshot) {
	if slices.Contains(f.failed, s) {
		return
	}
	if len(f.failed) == mostComing {
		f.failed = slices.Delete(f.failed, 0, 1)
	}
	f.failed = append(f.failed, s)
}

// undo looks for flows of the rounds that failed: what they had, and the one that succeeded has not, changes as if they had worked.
func (f *family) undo(s *model.FamilySnapshot, now time.Time) {
	for _, failed := range f.failed {
		for c := range s.ServicePortChanges(failed) {
			if _, ok := f.behind[nameOf(c)]; !ok {
				f.change(c, now)
			}
		}
		f.closeNodePorts(lost(failed.NodePortAddrs, s.NodePortAddrs))
	}
	f.failed = nil
}

// follows reports whether a flow goes where rules send it, or let it stay, that may be newer than those of a pass.
func (f *family) follows(fl *flow) bool {
	vip := model.VIP{Addr: fl.dest.Addr(), Protocol: fl.protocol, Port: fl.dest.Port()}
	for _, addrs := range [...][]netip.Addr{f.applied.NodePortAddrs, f.comingAddrs} {
		if sp, ok := lookup(f.frontends, addrs, vip); ok && sp.Serves(fl.replySource) {
			return true
		}
		ports, _ := lookup(f.coming, addrs, vip)
		if slices.ContainsFunc(ports, func(sp *model.ServicePort) bool { return sp.Serves(fl.replySource) }) {
			return true
		}
	}
	return false
}

// spare takes from the stale flows those that follow newer rules, and notes that there were some.
func (r *rules) spare(stale []flow) []flow {
	if r.follows == nil {
		return stale
	}
	kept := 0
	for i := range stale {
		if r.follows(&stale[i]) {
			r.spared = true
			continue
		}
		stale[kept] = stale[i]
		kept++
	}
	return stale[:kept]
}
