package iptables_test

import (
	"fmt"
	"testing"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// BenchmarkHostile shows the cost of a Service that multiplies something, as far as its budgets allow: of
// the batch that adds it to a cluster, without the kernel's part.
func BenchmarkHostile(b *testing.B) {
	for _, h := range modeltest.HostileServices() {
		b.Run(fmt.Sprintf("%+v", h), func(b *testing.B) {
			builder := model.NewBuilder(modeltest.Config())
			modeltest.Feed(builder, modeltest.Cluster(100, 10))
			have := iptables.Compile(nil, builder.Snapshot().Family(model.IPv4), iptables.Options{})
			h.Set(builder)
			s := builder.Snapshot().Family(model.IPv4)
			b.ReportAllocs()
			for b.Loop() {
				want := iptables.Compile(have, s, iptables.Options{})
				size := iptables.Diff(have, want).Size()
				b.ReportMetric(float64(size.Rules), "rules")
				b.ReportMetric(float64(size.Chains), "chains")
			}
		})
	}
}
