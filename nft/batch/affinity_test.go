package batch_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
	"github.com/vmapd/vmapd/nft/compile"
)

// The batch that takes an endpoint from a service port with affinity watches connections to it. An
// endpoint that the service port has is no such endpoint, whatever is in the set: it may be back, or
// gone from another service port.
func TestAGoneEndpointIsWatched(t *testing.T) {
	service := modeltest.NewService("ns1/web").Typed("LoadBalancer").On("172.30.0.41").LoadBalancer("192.168.98.41").
		Policies("Cluster", "Local").Sticky(60).TCP("http", 80).UDP("dns", 53)
	slice := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).UDP("dns", 8053)
	b := modeltest.Builder(modeltest.Config(), modeltest.OurNode(), service, slice.Local("10.0.0.2", "10.0.0.3"))
	have := compile.Options{}.Compile(nil, b.Snapshot().Family(model.IPv4))
	added := func(changes *batch.Batch, r *compile.Ruleset) []string {
		got := map[string]bool{}
		for _, s := range changes.Add {
			if s.Set == nft.GoneEndpoints {
				for _, op := range s.List {
					got[text(r, s.Set, op)] = true
				}
			}
		}
		return slices.Sorted(maps.Keys(got))
	}

	modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).UDP("dns", 8053).Local("10.0.0.2").Set(b)
	s := b.Snapshot().Family(model.IPv4)
	now := compile.Options{}.Compile(have, s)
	want := []string{"10.0.0.3 . 8053", "10.0.0.3 . 8080"}
	testaid.Equal(t, "watched", want, added(batch.Diff(have, now), now))
	testaid.Equal(t, "watched by another process", want, added(batch.DiffTable(tableOf(t, have), now), now))
	testaid.Equal(t, "watched when it comes", []string(nil), added(batch.Diff(now, have), have))
}
