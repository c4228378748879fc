package kernel

import (
	"fmt"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// benchSize is a cluster of Services with so many endpoints each.
type benchSize struct{ services, endpoints int }

func (s benchSize) String() string { return fmt.Sprintf("%dx%d", s.services, s.endpoints) }

func benchSizes() []benchSize {
	return []benchSize{{100, 10}, {1_000, 10}, {5_000, 50}, {10_000, 10}, {44_000, 1}}
}

// forSizes runs a benchmark for each size of cluster.
func forSizes(b *testing.B, run func(b *testing.B, size benchSize, builder *model.Builder)) {
	for _, size := range benchSizes() {
		b.Run(size.String(), func(b *testing.B) {
			builder := model.NewBuilder(model.Config{})
			modeltest.Feed(builder, modeltest.Cluster(size.services, size.endpoints))
			b.ReportAllocs()
			run(b, size, builder)
		})
	}
}

// BenchmarkApplyCold goes from a finished snapshot to the last commit, with no table
// there.
func BenchmarkApplyCold(b *testing.B) {
	forSizes(b, func(b *testing.B, _ benchSize, builder *model.Builder) {
		n := newNetNS(b)
		backend := open(b, n)
		s := builder.Snapshot()
		for b.Loop() {
			apply(b, backend, s)
			b.StopTimer()
			if err := remove(backend); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
}

// oneService is the slice of one of the Services, with other endpoints: so many, from
// a pod on that no other Service has.
func oneService(size benchSize, endpoints, first int) model.EndpointSlice {
	const elsewhere = 8_000_000
	s := modeltest.ClusterSlice(0, size.endpoints, 0).EndpointSlice
	s.Endpoints = nil
	for i := range endpoints {
		s.Endpoints = append(s.Endpoints, model.SliceEndpoint{
			Addresses: []string{modeltest.Pod(model.IPv4, elsewhere+first+i).String()},
		})
	}
	return s
}

// BenchmarkOneEndpoint goes from a changed EndpointSlice to the kernel's commit: one endpoint is replaced by another.
func BenchmarkOneEndpoint(b *testing.B) {
	b.Run("replaced", func(b *testing.B) {
		forSizes(b, func(b *testing.B, size benchSize, builder *model.Builder) {
			n := newNetNS(b)
			backend := open(b, n)
			apply(b, backend, builder.Snapshot())
			for i := 0; b.Loop(); i++ {
				builder.SetEndpointSlice(oneService(size, size.endpoints, 1-i%2))
				apply(b, backend, builder.Snapshot())
			}
		})
	})
}
