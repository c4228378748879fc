package kernel

import (
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// The count of a service port is the sum over its frontends, each of which may get and lose endpoints by
// itself; only a table that was replaced begins anew.
func TestRefusedConnectionsAddUp(t *testing.T) {
	builder := modeltest.Builder(modeltest.Config(), modeltest.NewService("ns1/web").On("172.30.0.41").External("192.168.99.41").TCP("http", 80))
	s := builder.Snapshot().Family(model.IPv4)
	name := modeltest.PortName("ns1/web", "http", model.TCP)
	sp, ok := s.ServicePort(name)
	if !ok || len(sp.Frontends) != 2 {
		t.Fatalf("want a service port with two frontends, got %v", sp)
	}
	first := counterKey(sp.Frontends[0])
	second := counterKey(sp.Frontends[1])
	var r refusedCounts
	for i, step := range []struct {
		first, second, all, want uint64
	}{
		{0, 0, 10, 0},
		{5, 2, 20, 7},
		{8, 2, 30, 10},
		{0, 4, 40, 12}, // the first has endpoints
		{1, 4, 50, 13}, // and has lost them again
		{1, 3, 60, 16}, // the second had some in between
		{0, 0, 4, 0},   // another table
		{2, 0, 5, 2},
	} {
		r.read(s, packetCounts{first: step.first, second: step.second})
		if got := r.of(name, step.first+step.second, step.all); got != step.want {
			t.Errorf("step %d: want %d, got %d", i, step.want, got)
		}
	}
	r.read(modeltest.Snapshot(modeltest.Config()).Family(model.IPv4), packetCounts{})
	if len(r.now)+len(r.past) > 0 {
		t.Errorf("nothing of a deleted Service is left, got %v and %v", r.now, r.past)
	}
}
