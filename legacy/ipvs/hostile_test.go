package ipvs_test

import (
	"fmt"
	"testing"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// BenchmarkHostile shows the cost of a Service that multiplies something, as far as its budgets allow: of
// the plan that adds it to a cluster, without the kernel's part.
func BenchmarkHostile(b *testing.B) {
	for _, h := range modeltest.HostileServices() {
		b.Run(fmt.Sprintf("%+v", h), func(b *testing.B) {
			builder := model.NewBuilder(modeltest.Config())
			modeltest.Feed(builder, modeltest.Cluster(100, 10))
			have := ipvs.Compile(nil, builder.Snapshot().Family(model.IPv4), ipvs.Options{})
			h.Set(builder)
			s := builder.Snapshot().Family(model.IPv4)
			b.ReportAllocs()
			for b.Loop() {
				want := ipvs.Compile(have, s, ipvs.Options{})
				plan := ipvs.Diff(have, want)
				b.ReportMetric(float64(len(plan)), "operations")
			}
		})
	}
}
