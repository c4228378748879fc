package kernel

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model/modeltest"
)

// Connections that are refused for want of an endpoint are counted by themselves, by the address and the node port that
// they are for, and those that source ranges do not admit are not counted. No count gets smaller.
func TestConnectionsThatFailAreCounted(t *testing.T) {
	plain := func(pods ...string) modeltest.Slice {
		return modeltest.NewSlice("default/plain-1", "plain").TCP("", 8080).Local(pods...)
	}
	builder := modeltest.Builder(modeltest.Config(), modeltest.OurNode(),
		modeltest.NewService("default/plain").On("172.30.0.41").TCP("", 80).NodePort(30041), plain("10.0.0.2", "10.0.0.3"),
		modeltest.NewService("default/ranges").Typed("LoadBalancer").On("172.30.0.42").LoadBalancer("192.168.98.42").
			Ranges("10.9.0.0/16").TCP("", 80),
		modeltest.NewSlice("default/ranges-1", "ranges").TCP("", 8080).Local("10.0.0.2"))
	w := newWorld(t)
	b := openCounting(t, w.node)
	apply(t, b, builder.Snapshot())
	outcomes := func(what string, want map[string][2]int) {
		t.Helper()
		list, err := b.Connections(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := map[string][2]int{}
		for _, c := range list {
			got[c.Name.Name] = [2]int{int(c.Connections - c.Refused), int(c.Refused)}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: forwarded, refused (-want +got):\n%s", what, diff)
		}
	}
	outcomes("at first", map[string][2]int{"plain": {0, 0}, "ranges": {0, 0}})
	w.outside.connections(t, 2, "tcp", "172.30.0.41:80")
	w.outside.dropped(t, 3, "tcp", "192.168.98.42:80")
	for _, what := range []string{"with endpoints", "after a comparison", "after a restart"} {
		outcomes(what, map[string][2]int{"plain": {2, 0}, "ranges": {0, 0}})
		if what == "after a comparison" {
			b = reopen(t, w.node, b, Options{Counters: true})
		}
		b.Resync()
		apply(t, b, builder.Snapshot())
	}
	plain().Set(builder)
	apply(t, b, builder.Snapshot())
	w.outside.refused(t, 4, "tcp", "172.30.0.41:80")
	w.outside.refused(t, 5, "tcp", "192.168.0.2:30041")
	outcomes("without endpoints", map[string][2]int{"plain": {2, 9}, "ranges": {0, 0}})
	plain("10.0.0.2").Set(builder)
	apply(t, b, builder.Snapshot())
	w.outside.connections(t, 1, "tcp", "192.168.0.2:30041")
	outcomes("with an endpoint again", map[string][2]int{"plain": {3, 9}, "ranges": {0, 0}})
	plain().Set(builder)
	apply(t, b, builder.Snapshot())
	w.outside.refused(t, 6, "tcp", "172.30.0.41:80")
	outcomes("without endpoints again", map[string][2]int{"plain": {3, 15}, "ranges": {0, 0}})
	b = reopen(t, w.node, b, Options{})
	apply(t, b, builder.Snapshot())
	outcomes("not counting", map[string][2]int{})
	b = reopen(t, w.node, b, Options{Counters: true})
	apply(t, b, builder.Snapshot())
	w.outside.refused(t, 20, "tcp", "172.30.0.41:80")
	outcomes("counting again", map[string][2]int{"plain": {0, 20}, "ranges": {0, 0}})
}
