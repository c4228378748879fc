package kernel

import (
	"fmt"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// BenchmarkLookupTable replaces one endpoint of a Service with a lookup table of 4,093 slots, from a changed
// EndpointSlice to the kernel's commit, among 999 other Services. The operations are the slots that change, each
// deleted and added.
func BenchmarkLookupTable(b *testing.B) {
	for _, endpoints := range []int{3, 10, 50, 100} {
		b.Run(fmt.Sprint(endpoints), func(b *testing.B) {
			size := benchSize{1_000, endpoints}
			builder := model.NewBuilder(model.Config{})
			modeltest.Feed(builder, modeltest.Cluster(size.services, 3))
			service := modeltest.ClusterService(0)
			service.Algorithm("maglev").Set(builder)
			builder.SetEndpointSlice(oneService(size, endpoints, 0))
			backend := open(b, newNetNS(b))
			apply(b, backend, builder.Snapshot())
			before, i := backend.Stats(model.IPv4).Operations, 0
			for b.Loop() {
				i++
				builder.SetEndpointSlice(oneService(size, endpoints, i%2))
				apply(b, backend, builder.Snapshot())
			}
			b.ReportMetric(float64(backend.Stats(model.IPv4).Operations-before)/float64(i), "operations/op")
		})
	}
}
