package model_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
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

// BenchmarkMemory reports the memory of a Builder and its snapshot. Each object has strings of
// its own, as from a decoder.
func BenchmarkMemory(b *testing.B) {
	benchClusters(b, func(b *testing.B, services, endpoints int) {
		for b.Loop() {
			before := liveHeap()
			builder := model.NewBuilder(modeltest.Config())
			for o := range modeltest.Cluster(services, endpoints) {
				decoded(o).Set(builder)
			}
			snapshot := builder.Snapshot()
			kept := liveHeap() - before
			b.ReportMetric(kept/float64(services), "B/Service")
			b.ReportMetric(kept/float64(services*endpoints), "B/endpoint")
			b.ReportMetric(kept/1e6, "MB")
			runtime.KeepAlive(builder)
			runtime.KeepAlive(snapshot)
		}
	})
}

func liveHeap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// decoded returns a copy of an object that shares no string with others.
func decoded(o modeltest.Object) modeltest.Object {
	clone := func(n model.NamespacedName) model.NamespacedName {
		return model.NamespacedName{Namespace: strings.Clone(n.Namespace), Name: strings.Clone(n.Name)}
	}
	switch o := o.(type) {
	case modeltest.Service:
		o.NamespacedName = clone(o.NamespacedName)
		o.Ports = slices.Clone(o.Ports)
		for i := range o.Ports {
			o.Ports[i].Name = strings.Clone(o.Ports[i].Name)
		}
		return o
	case modeltest.Slice:
		o.NamespacedName = clone(o.NamespacedName)
		o.Labels = map[string]string{model.LabelServiceName: strings.Clone(o.Labels[model.LabelServiceName])}
		o.Ports = slices.Clone(o.Ports)
		for i := range o.Ports {
			o.Ports[i].Name = new(strings.Clone(*o.Ports[i].Name))
		}
		return o
	}
	return o
}
