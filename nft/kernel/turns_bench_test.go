package kernel

import (
	"fmt"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// BenchmarkRoundRobin is a cluster whose Services all take turns, with objects of its own for
// each: programmed from nothing, then with one Service more and one fewer in turn.
func BenchmarkRoundRobin(b *testing.B) {
	for _, services := range []int{1_000, 4_000, 10_000} {
		builder := model.NewBuilder(model.Config{Algorithm: model.RoundRobin})
		modeltest.Feed(builder, modeltest.Cluster(services, 10))
		b.Run(fmt.Sprintf("cold/%d", services), func(b *testing.B) {
			backend := open(b, newNetNS(b))
			s := builder.Snapshot()
			for b.Loop() {
				apply(b, backend, s)
				b.StopTimer()
				if err := backend.Remove(b.Context()); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
		b.Run(fmt.Sprintf("comes-and-goes/%d", services), func(b *testing.B) {
			backend := open(b, newNetNS(b))
			apply(b, backend, builder.Snapshot())
			slice := modeltest.ClusterSlice(0, 10, 0)
			i := 0
			for b.Loop() {
				if i%2 == 0 {
					slice.Delete(builder)
				} else {
					slice.Set(builder)
				}
				i++
				apply(b, backend, builder.Snapshot())
			}
		})
	}
}
