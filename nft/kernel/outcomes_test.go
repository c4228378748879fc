package kernel

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
)

// Connections that are refused for want of an endpoint are counted by themselves, by the address and the node port that
// they are for, and those that source ranges do not admit are not counted. No count gets smaller.
func TestConnectionsThatFailAreCounted(t *testing.T) {
	ranges := func(s *model.Service) {
		s.Type, s.Ingress, s.SourceRanges = "LoadBalancer", []model.Ingress{{IP: "192.168.98.42"}}, []string{"10.9.0.0/16"}
	}
	builder := countedBuilder(map[string]func(*model.Service){"plain": nil, "sticky": ranges})
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
			if c.Family == model.IPv4 && c.Name.Protocol == model.TCP {
				got[c.Name.Name] = [2]int{int(c.Connections - c.Refused), int(c.Refused)}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: forwarded, refused (-want +got):\n%s", what, diff)
		}
	}
	outcomes("at first", map[string][2]int{"plain": {0, 0}, "sticky": {0, 0}})
	w.outside.connections(t, 2, "tcp", "172.30.0.41:80")
	w.outside.dropped(t, 3, "tcp", "192.168.98.42:80")
	outcomes("with endpoints", map[string][2]int{"plain": {2, 0}, "sticky": {0, 0}})
	for _, s := range countedSlices("plain") {
		builder.SetEndpointSlice(s)
	}
	apply(t, b, builder.Snapshot())
	w.outside.refused(t, 4, "tcp", "172.30.0.41:80")
	w.outside.refused(t, 5, "tcp", "192.168.0.2:30041")
	outcomes("without endpoints", map[string][2]int{"plain": {2, 9}, "sticky": {0, 0}})
	for _, s := range countedSlices("plain", 2) {
		builder.SetEndpointSlice(s)
	}
	apply(t, b, builder.Snapshot())
	w.outside.connections(t, 1, "tcp", "192.168.0.2:30041")
	outcomes("with an endpoint again", map[string][2]int{"plain": {3, 9}, "sticky": {0, 0}})
	for _, s := range countedSlices("plain") {
		builder.SetEndpointSlice(s)
	}
	apply(t, b, builder.Snapshot())
	w.outside.refused(t, 6, "tcp", "172.30.0.41:80")
	outcomes("without endpoints again", map[string][2]int{"plain": {3, 15}, "sticky": {0, 0}})
	b = reopen(t, w.node, b, Options{})
	apply(t, b, builder.Snapshot())
	outcomes("not counting", map[string][2]int{})
	b = reopen(t, w.node, b, Options{Counters: true})
	apply(t, b, builder.Snapshot())
	w.outside.refused(t, 20, "tcp", "172.30.0.41:80")
	outcomes("counting again", map[string][2]int{"plain": {0, 20}, "sticky": {0, 0}})
}
