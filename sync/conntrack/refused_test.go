package conntrack

import (
	"slices"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/sync/reconcile"
)

var dnsPort = model.ServicePortName{
	NamespacedName: model.NamespacedName{Namespace: "kube-system", Name: "dns"}, Port: "dns", Protocol: model.UDP,
}

// A service port that the kernel refuses keeps its rules, and so its flows. Those of the others end as ever.
func TestARefusedServicePortDoesNotKeepTheFlowsOfOthers(t *testing.T) {
	now := time.Now()
	const gone = "udp 172.30.0.11:53 from 10.0.0.2:8053"
	web := func(pod string) []modeltest.Object {
		return []modeltest.Object{
			modeltest.NewService("ns/web").On("172.30.0.11").UDP("p", 53),
			modeltest.NewSlice("ns/web-4", "web").UDP("p", 8053).Endpoint(pod),
		}
	}
	c := newCluster(slices.Concat(dnsSlices(nil, 2), []modeltest.Object{dns()}, web("10.0.0.2"))...)
	c.apply(now)
	c.pass(t, now)

	set(c, dnsSlices(nil, 3)...)
	set(c, web("10.0.0.3")...)
	c.apply(now, dnsPort)
	c.wantPass(t, "a refused service port", now, []string{gone}, append(to("udp", 2), gone))
	set(c, dnsSlices(nil, 4)...)
	c.apply(now, dnsPort)
	if _, did := c.pass(t, now); did {
		t.Error("a change of a service port that is refused still has a pass")
	}
	// An answer of pod 3 is of rules that were in force in part.
	c.apply(now)
	c.wantPass(t, "it is not refused any more", now, append(to("udp", 2), to("udp", 3)...),
		slices.Concat(to("udp", 2), to("udp", 3), to("udp", 4)))
}

// One that goes back to what is in force is refused no more, and one that is deleted meanwhile ends its flows.
func TestARefusedServicePortThatChangesAgain(t *testing.T) {
	now := time.Now()
	for name, tt := range map[string]struct {
		then func(*cluster)
		want []string
	}{
		"as before": {func(c *cluster) { set(c, dnsSlices(nil, 2)...) }, to("udp", 3)},
		"deleted":   {func(c *cluster) { dns().Delete(c.Builder) }, append(to("udp", 2), to("udp", 3)...)},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(append(dnsSlices(nil, 2), dns())...)
			c.apply(now)
			c.pass(t, now)
			set(c, dnsSlices(nil, 3)...)
			c.apply(now, dnsPort)
			c.pass(t, now)
			tt.then(c)
			c.apply(now)
			c.wantPass(t, "the next round", now, tt.want, append(to("udp", 2), to("udp", 3)...))
		})
	}
}

// Its rules stay as they were also when a round before, with others, failed as a whole.
func TestARefusedServicePortBehindAFailedRound(t *testing.T) {
	now := time.Now()
	c := newCluster(append(dnsSlices(nil, 2), dns())...)
	c.apply(now)
	c.pass(t, now)
	set(c, dnsSlices(nil, 4)...)
	c.fail()
	set(c, dnsSlices(nil, 3)...)
	c.apply(now, dnsPort)
	c.wantPass(t, "a refused service port", now, nil, to("udp", 2))
}

// A service port that is refused from the start may have the rules of an earlier process, which stay.
func TestAServicePortThatIsRefusedFromTheStart(t *testing.T) {
	now := time.Now()
	c := newCluster(append(dnsSlices(nil, 3), dns())...)
	c.apply(now, dnsPort)
	c.wantPass(t, "the first pass", now, nil, to("udp", 2))
	c.apply(now)
	c.wantPass(t, "it is not refused any more", now, to("udp", 2), to("udp", 2))
}

// The reconciler takes the refused service ports of a round.
func TestDoneOfARoundWithARefusedServicePort(t *testing.T) {
	c := newCluster(append(dnsSlices(nil, 2), dns())...)
	r := New(Options{})
	r.Done(reconcile.Round{Snapshot: c.Snapshot()})
	set(c, dnsSlices(nil, 3)...)
	round := reconcile.Round{Snapshot: c.Snapshot()}
	round.Refused[model.IPv6] = portsOf([]model.ServicePortName{dnsPort})
	r.Done(round)
	want := []int{model.IPv4: 0, model.IPv6: 1}
	r.each(func(name model.Family, f *family) {
		if got := len(f.refused); got != want[name] {
			t.Errorf("%v: %d service ports are refused, want %d", name, got, want[name])
		}
	})
}
