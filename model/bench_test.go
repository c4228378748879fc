package model_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// clusters are the shapes that benchmarks use: few endpoints for many Services, many for
// some, and a small one.
var clusters = []struct{ services, endpoints int }{{44_000, 1}, {5_000, 50}, {100, 10}}

func benchClusters(b *testing.B, run func(b *testing.B, services, endpoints int)) {
	for _, c := range clusters {
		b.Run(fmt.Sprintf("%dx%d", c.services, c.endpoints), func(b *testing.B) { run(b, c.services, c.endpoints) })
	}
}

// BenchmarkCold is a Builder that is fed with all objects, and its first snapshot.
func BenchmarkCold(b *testing.B) {
	benchClusters(b, func(b *testing.B, services, endpoints int) {
		objects := slices.Collect(modeltest.Cluster(services, endpoints))
		b.ReportAllocs()
		for b.Loop() {
			builder := model.NewBuilder(modeltest.Config())
			modeltest.Feed(builder, slices.Values(objects))
			builder.Snapshot()
		}
	})
}

// BenchmarkOneEndpoint is one endpoint that comes or goes, and the next snapshot.
func BenchmarkOneEndpoint(b *testing.B) {
	benchClusters(b, func(b *testing.B, services, endpoints int) {
		builder := model.NewBuilder(modeltest.Config())
		modeltest.Feed(builder, modeltest.Cluster(services, endpoints))
		last := builder.Snapshot()
		versions := [...]modeltest.Slice{
			modeltest.ClusterSlice(services/2, endpoints+1, 0), modeltest.ClusterSlice(services/2, endpoints, 0),
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			versions[i%2].Set(builder)
			next := builder.Snapshot()
			if next == last {
				b.Fatal("the snapshot did not change")
			}
			last = next
		}
	})
}
