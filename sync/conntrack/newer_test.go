package conntrack

import (
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
	p := f.begin(now)
	old, newer, never := to("udp", 2)[:4], to("udp", 3)[:4], to("udp", 4)[:4]
	spared := func(texts []string) (n int) {
		p.follow(p.applied, p.begun)
		for _, text := range texts {
			if fl := parse(t, text); !p.stale(&fl) {
				n++
			}
		}
		return n
	}
	if n := spared(newer); n != 0 {
		t.Errorf("%d flows are spared that no round has asked for", n)
	}
	set(c, dnsSlices(nil, 3)...)
	f.begun = c.Snapshot().Family(model.IPv4)
	for _, when := range []string{"begun", "done"} {
		if n := spared(newer); n != len(newer) {
			t.Errorf("the round has %s: %d flows of its endpoint are spared, want %d", when, n, len(newer))
		}
		if n := spared(append(old, never...)); n != 0 {
			t.Errorf("the round has %s: %d flows to others are spared, want none", when, n)
		}
		c.apply(now)
	}
	f.end(p, nil)
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
	p := f.begin(now)
	set(c, dnsSlices(nil, 3)...)
	c.fail()
	p.follow(p.applied, p.begun)
	if fl := parse(t, to("udp", 3)[0]); p.stale(&fl) {
		t.Fatal("the flow is not spared")
	}
	f.end(p, nil)
	if c.families[model.IPv4].begin(now) != nil {
		t.Error("another pass follows, although no round has ended")
	}
	set(c, dnsSlices(nil, 4)...)
	c.apply(now)
	if deleted, _ := c.pass(t, now, to("udp", 3)[0]); len(deleted) != 1 {
		t.Error("the flow stays: its rules never came into force")
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
