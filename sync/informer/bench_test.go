package informer

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/informer/apitest"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// bigSlice is a slice of 100 endpoints as a controller writes it, bulk and all.
func bigSlice(i, version int) *discoveryv1.EndpointSlice {
	s := slice(fmt.Sprint("svc", i))
	for j := range 100 {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.%d.%d.%d", i>>8, i&255, j+1)},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(version%2 == 1 && j == 0)},
			NodeName:   new(fmt.Sprint("node", j)),
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "ns1", Name: fmt.Sprintf("svc%d-7d4b9c-%d", i, j), UID: "b5c5d9a8-5e12-4c33-8d5c-000000000000"},
			Zone:       new("zone-a"),
		})
	}
	return s
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// BenchmarkOneSlice is from the API server's change of one endpoint to the next
// snapshot, in clusters of several sizes: the size must not matter. What it reports
// as bytes of an endpoint is all that the store, the builder and the snapshot keep.
func BenchmarkOneSlice(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint("endpoints-", n*100), func(b *testing.B) {
			s, err := apitest.NewServer(apitest.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			for i := range n {
				s.Set(service(fmt.Sprint("svc", i), fmt.Sprintf("172.30.%d.%d", i>>8, i&255)))
				s.Set(bigSlice(i, 0))
			}
			s.Set(node("node1", "192.168.0.2"))
			client, err := Connect(Config{Master: s.URL(), QPS: -1})
			if err != nil {
				b.Fatal(err)
			}
			before, start := heap(), time.Now()
			state := reconcile.NewState(model.NewBuilder(model.Config{NodeName: "node1"}), 1)
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() {
				done <- (&Source{Client: client, NodeName: "node1", Log: slog.New(slog.DiscardHandler)}).Run(ctx, state)
			}()
			var last *model.Snapshot
			next := func() {
				for {
					<-state.Changed()
					if snap, ok := state.Snapshot(); ok && snap != last {
						last = snap
						return
					}
				}
			}
			next()
			took := time.Since(start)
			kept := heap() - before
			version := 0
			for b.Loop() {
				version++
				s.Set(bigSlice(0, version))
				next()
			}
			b.ReportMetric(float64(took.Milliseconds()), "ms-to-start")
			b.ReportMetric(kept/float64(n*100), "B/endpoint")
			cancel()
			if err := <-done; err != nil {
				b.Error(err)
			}
			runtime.KeepAlive(last)
		})
	}
}
