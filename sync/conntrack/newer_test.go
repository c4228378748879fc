package conntrack

import (
	"net/netip"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model"
)

// A round begins while a pass lists flows: those that follow the new rules stay, before the round is done, and after it.
func TestAPassSparesWhatFollowsNewerRules(t *testing.T) {
	now := time.Now()
	c := newCluster(append(dnsSlices(nil, 2), dns())...)
	c.apply(now)
	c.pass(t, now)
	set(c, dnsSlices(nil)...)
	c.apply(now) // pod 2 has gone
	f := &c.families[model.IPv4]
	r, taken := f.begin(now)
	old, newer, never := to("udp", 2)[:4], to("udp", 3)[:4], to("udp", 4)[:4]
	spared := func(texts []string) int {
		var list []flow
		for _, text := range texts {
			fl := parse(t, text)
			if !r.stale(&fl) {
				t.Errorf("%s is not stale by the rules of the pass", text)
			}
			list = append(list, fl)
		}
		r.follows = f.follows
		return len(list) - len(r.spare(list))
	}
	if n := spared(newer); n != 0 {
		t.Errorf("%d flows are spared that no round has asked for", n)
	}
	set(c, dnsSlices(nil, 3)...)
	f.expect(c.Snapshot().Family(model.IPv4))
	for _, when := range []string{"begun", "done"} {
		if n := spared(newer); n != len(newer) {
			t.Errorf("the round has %s: %d flows of its endpoint are spared, want %d", when, n, len(newer))
		}
		if n := spared(append(old, never...)); n != 0 {
			t.Errorf("the round has %s: %d flows to others are spared, want none", when, n)
		}
		c.apply(now)
	}
	f.end(r, taken, nil)
	if deleted, did := c.pass(t, now, append(newer, old...)...); !did || len(deleted) != len(old) {
		t.Errorf("the next pass deletes %q, want those to the pod that has gone", deleted)
	}
}

// A round fails, and the next one has other endpoints: flows that were spared for the first are stale.
func TestSparedFlowsGoIfTheirRulesNeverCome(t *testing.T) {
	now := time.Now()
	c := newCluster(append(dnsSlices(nil, 2), dns())...)
	c.apply(now)
	c.pass(t, now)
	set(c, dnsSlices(nil, 4)...)
	c.apply(now)
	f := &c.families[model.IPv4]
	r, taken := f.begin(now)
	set(c, dnsSlices(nil, 3)...)
	f.expect(c.Snapshot().Family(model.IPv4))
	r.follows = f.follows
	fl := parse(t, to("udp", 3)[0])
	if len(r.spare([]flow{fl})) != 0 {
		t.Fatal("the flow is not spared")
	}
	f.end(r, taken, nil)
	set(c, dnsSlices(nil, 4)...)
	f.take(c.Snapshot().Family(model.IPv4), nil, nil, now)
	if deleted, _ := c.pass(t, now, to("udp", 3)[0]); len(deleted) != 1 {
		t.Error("the flow stays: its rules never came into force")
	}
}

// In the kernel, too: what follows newer rules when a sweep has listed it is not deleted.
func TestASweepSparesWhatFollowsNewerRules(t *testing.T) {
	n := newNamespace(t)
	texts := []string{"udp 172.30.0.10:53 from 10.0.0.3:8053", "udp 172.30.0.11:53 from 10.0.0.4:8053"}
	n.create(t, len(texts), func(i int) flow { return parse(t, texts[i]) })
	r := servingRules(model.IPv4)
	follows := netip.MustParseAddrPort("10.0.0.3:8053")
	r.follows = func(f *flow) bool { return f.replySource == follows }
	if _, deleted, err := n.open(t).sweep(t.Context(), model.IPv4, r); deleted != 0 || err != nil || !r.spared {
		t.Errorf("%d deleted, error %v, spared: %v", deleted, err, r.spared)
	}
	r.follows = func(*flow) bool { return false }
	if _, deleted, err := n.open(t).sweep(t.Context(), model.IPv4, r); deleted != 1 || err != nil {
		t.Errorf("%d deleted, error %v, want the one that is stale", deleted, err)
	}
}

// Rounds that fail one after the other, each with other endpoints, leave no more than some.
func TestRoundsThatFailAreForgotten(t *testing.T) {
	c := newCluster(append(dnsSlices(nil, 2), dns())...)
	c.apply(time.Now())
	f := &c.families[model.IPv4]
	for i := range 3 * mostComing {
		set(c, dnsSlices(nil, 3+i)...)
		f.expect(c.Snapshot().Family(model.IPv4))
		f.fail(c.Snapshot().Family(model.IPv4))
	}
	if len(f.coming) == 0 {
		t.Error("no frontend is noted")
	}
	if len(f.failed) != mostComing {
		t.Errorf("%d snapshots are kept, want %d", len(f.failed), mostComing)
	}
	for vip, list := range f.coming {
		if len(list) != mostComing {
			t.Errorf("%v has %d service ports, want %d", vip, len(list), mostComing)
		}
	}
}

// What rounds that failed had in force for a moment is gone: flows that began by it end with the next round.
func TestFlowsOfRoundsThatFailedEnd(t *testing.T) {
	remove := func(c *cluster) { dns().Delete(c.Builder) }
	pods := func(n ...int) func(c *cluster) { return func(c *cluster) { set(c, dnsSlices(nil, n...)...) } }
	add := func(c *cluster) { set(c, dns()) }
	tests := []struct {
		name           string
		before         func(*cluster) // nil: no round worked before
		failed, worked func(*cluster)
		want           []string
	}{
		{"a Service that is gone", remove, add, remove, to("udp", 2)},
		{"an endpoint that is gone", pods(3), pods(2), pods(3), to("udp", 2)},
		{"an endpoint that stays", pods(2), pods(2, 3), pods(2), nil},
		{"the first rounds", nil, add, remove, to("udp", 2)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			now := time.Now()
			c := newCluster(append(dnsSlices(nil, 2), dns())...)
			if tt.before != nil {
				tt.before(c)
				c.apply(now)
				c.pass(t, now)
			}
			for range 2 {
				tt.failed(c)
				c.fail()
			}
			tt.worked(c)
			c.apply(now)
			c.wantPass(t, "the next pass", now, tt.want, append(to("udp", 2), "udp 203.0.113.8:53 from 10.0.0.2:8053"))
		})
	}
}
