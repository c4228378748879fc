package conntrack

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// unanswered are flows as they are before their answer.
func unanswered(flows []string) (list []string) {
	for _, flow := range flows {
		list = append(list, flow+" unanswered")
	}
	return list
}

// The rules were gone for a while: what began meanwhile and has no answer is to meet them.
func TestConnectionsFromWhileTheRulesWereGone(t *testing.T) {
	now := modeltest.Moment(0)
	// An endpoint that is on an external IP with its port: rules do not translate what goes there.
	self := modeltest.NewService("default/self").On("172.30.0.30").External("192.168.99.20").TCP("p", 53)
	c := newCluster(append(dnsSlices(nil, 2), dns(), self, modeltest.NewSlice("default/self-4", "self").TCP("p", 53).Ready("192.168.99.20"))...)
	c.apply(now)
	c.pass(t, now)
	gone := append(unanswered(slices.Concat(to("tcp", 0), to("udp", 0), to("sctp", 0), to("udp", 9))), to("udp", 0)...)
	stay := slices.Concat(
		to("tcp", 0), to("sctp", 0), // another host answers, or a process of the node
		unanswered(slices.Concat(to("tcp", 2), to("udp", 2), to("tcp", 9))), // translated
		others, unanswered(others), []string{"tcp 192.168.99.20:53 unanswered"},
	)
	c.apply(now)
	if got, did := c.pass(t, now, gone...); did {
		t.Errorf("without a repair: a pass deletes %q", got)
	}
	c.list(aRepair)
	c.wantPass(t, "after a repair", now, gone, slices.Concat(gone, stay))
}

// repair tells of a round that has put rules back.
func (b *bench) repair(failed ...model.Family) {
	r := reconcile.Round{Snapshot: b.Snapshot(), Full: true, Repair: true}
	for _, f := range failed {
		r.Failed[f] = true
	}
	b.Done(r)
}

func TestAPassFollowsARepairAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, ip(1), ip(2).On("172.30.0.2", "fd00:172:30::2"))
		b.apply()
		b.want(t, "0s IPv4", "0s IPv6")
		time.Sleep(10 * time.Second)
		b.Done(reconcile.Round{Snapshot: b.Snapshot(), Full: true})
		b.want(t) // nothing was repaired
		b.repair()
		b.want(t, "10s IPv4", "10s IPv6")
		time.Sleep(300 * time.Millisecond)
		b.repair(model.IPv4)
		b.want(t, "10.3s IPv6") // IPv4 has no rules yet
	})
}
