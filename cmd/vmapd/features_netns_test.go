package main

import (
	"slices"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft/kernel"
)

// A tenant who is the only one with session affinity, source ranges and a node port, and who makes and deletes that
// Service all the time, has the rules of these features come and go for all. That loses nobody's connections, beside
// 5,000 Services of others.
func TestTheOnlyUserOfFeaturesCostsOthersLittle(t *testing.T) {
	w := newLab(t)
	backend := openKernel(t, w.Node, kernel.Options{})
	builder := model.NewBuilder(model.Config{})
	modeltest.Feed(builder, modeltest.Cluster(5_000, 1))
	theirs := modeltest.ClusterSlice(9, 1, 0) // of the Service that askAlong asks
	theirs.Endpoints = nil
	theirs.Ready("10.0.0.2", "10.0.0.3", "10.0.0.4").Set(builder)
	apply := func() time.Duration {
		t.Helper()
		began := time.Now()
		if err := backend.Apply(t.Context(), builder.Snapshot()); err != nil {
			t.Fatal(err)
		}
		return time.Since(began)
	}
	apply()
	plain := modeltest.NewService("tenant/x").On("172.31.255.1").TCP("", 80)
	turns := func(s modeltest.Service) (times []time.Duration) {
		for range 100 {
			s.Set(builder)
			times = append(times, apply())
			s.Delete(builder)
			times = append(times, apply())
		}
		slices.Sort(times)
		return times
	}
	median := func(times []time.Duration) time.Duration { return times[len(times)/2] }
	var without, with []time.Duration
	seen := askAlong(t, w, func() { without = turns(plain) })
	t.Logf("a Service without features: %v each time (p99 %v); others: %v", median(without), without[len(without)*99/100], &seen.Report)
	seen = askAlong(t, w, func() {
		with = turns(plain.NodePort(31999).Sticky(10800).LoadBalancer("192.168.98.77").Ranges("198.18.0.0/15"))
	})
	t.Logf("the only one with features: %v each time (p99 %v); others: %v", median(with), with[len(with)*99/100], &seen.Report)
	if seen.Lost() > 0 || seen.Sent == 0 {
		t.Errorf("others lose connections: %v", &seen.Report)
	}
	if most := maxWait / 10; median(with) > most {
		t.Errorf("a batch takes %v, want less than %v", median(with), most)
	}
}
