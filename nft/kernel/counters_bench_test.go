package kernel

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// BenchmarkNewConnectionCounted measures the first packet of a connection to a Service, with
// counters and without, in turns, in a table of 10,000 Services. One operation is a round of
// both; the figures are medians.
func BenchmarkNewConnectionCounted(b *testing.B) {
	const connects = 1000
	builder := model.NewBuilder(model.Config{})
	modeltest.Feed(builder, modeltest.Cluster(10_000, 10))
	to := netip.AddrPortFrom(manyService(builder, 1, 2, false), 80)
	var injectors [2]*injector
	var took [2][]time.Duration
	var counting *Backend
	for i := range injectors {
		n := newNetNS(b)
		injectors[i] = newInjector(b, n)
		backend := openAs(b, Options{NetNS: n.fd(), Counters: i == 1})
		if i == 1 {
			counting = backend
		}
		apply(b, backend, builder.Snapshot())
	}
	round := 0
	for b.Loop() {
		for i := range injectors {
			i = (i + round) % 2
			took[i] = append(took[i], injectors[i].send(b, to, connects, false))
			b.StopTimer()
			injectors[i].forget(b)
			b.StartTimer()
		}
		round++
	}
	if got, want := connections(b, counting)["IPv4 default/many-1:udp/udp"], uint64(round*connects); got != want {
		b.Fatalf("%d connections are counted, want %d", got, want)
	}
	var median [2]float64
	for i, list := range took {
		slices.Sort(list)
		median[i] = float64(list[len(list)/2].Nanoseconds())
	}
	b.ReportMetric(median[0], "ns/without")
	b.ReportMetric(median[1], "ns/counted")
	b.ReportMetric(median[1]/median[0], "counted:without")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkConnections reads what is counted, of so many service ports.
func BenchmarkConnections(b *testing.B) {
	for _, services := range []int{1_000, 10_000, 50_000} {
		b.Run(fmt.Sprint(services), func(b *testing.B) {
			backend := openCounting(b, newNetNS(b))
			builder := model.NewBuilder(model.Config{})
			modeltest.Feed(builder, modeltest.Cluster(services, 1))
			apply(b, backend, builder.Snapshot())
			b.ReportAllocs()
			for b.Loop() {
				list, err := backend.Connections(b.Context())
				if err != nil || len(list) < services {
					b.Fatalf("%d counts, %v", len(list), err)
				}
			}
		})
	}
}

// BenchmarkCounters goes from a snapshot to the commit: from nothing, to begin and to end
// to count at a restart, and for one Service more and less, with counters and without.
func BenchmarkCounters(b *testing.B) {
	const services = 44_000
	builder := model.NewBuilder(model.Config{})
	modeltest.Feed(builder, modeltest.Cluster(services, 1))
	s := builder.Snapshot()
	for _, counters := range []bool{false, true} {
		b.Run(fmt.Sprintf("cold/%v", counters), func(b *testing.B) {
			backend := openAs(b, Options{NetNS: newNetNS(b).fd(), Counters: counters})
			for b.Loop() {
				apply(b, backend, s)
				b.StopTimer()
				if err := backend.Remove(b.Context()); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
		b.Run(fmt.Sprintf("one-service/%v", counters), func(b *testing.B) {
			backend := openAs(b, Options{NetNS: newNetNS(b).fd(), Counters: counters})
			apply(b, backend, s)
			more := model.Service{
				NamespacedName: model.NamespacedName{Namespace: "default", Name: "one-more"},
				ClusterIPs:     []string{"172.29.0.1"}, Ports: []model.Port{{Port: 80}},
			}
			for i := 0; b.Loop(); i++ {
				if i%2 == 0 {
					builder.SetService(more)
				} else {
					builder.DeleteService(more.NamespacedName)
				}
				apply(b, backend, builder.Snapshot())
			}
			builder.DeleteService(more.NamespacedName)
		})
	}
	b.Run("switch", func(b *testing.B) {
		n := newNetNS(b)
		backend := open(b, n)
		apply(b, backend, s)
		for i := 0; b.Loop(); i++ {
			backend = reopen(b, n, backend, Options{Counters: i%2 == 0})
			apply(b, backend, s)
		}
	})
}
