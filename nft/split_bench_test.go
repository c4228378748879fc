package nft_test

import (
	"fmt"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
)

// BenchmarkSplit takes a cold start's batch apart, and before that, makes it.
func BenchmarkSplit(b *testing.B) {
	const size = 8_000
	for _, cluster := range []struct{ services, endpoints int }{{5_000, 50}, {44_000, 1}} {
		builder := model.NewBuilder(modeltest.Config())
		modeltest.Feed(builder, modeltest.Cluster(cluster.services, cluster.endpoints))
		want := nft.Compile(nil, builder.Snapshot().Family(model.IPv4))
		name := fmt.Sprintf("%dx%d", cluster.services, cluster.endpoints)
		b.Run("batch/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				nft.DiffTable(nil, want)
			}
		})
		b.Run("split/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				batch := nft.DiffTable(nil, want)
				b.StartTimer()
				for range batch.Split(size) {
				}
			}
		})
	}
}
