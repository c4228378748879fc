package status_test

import (
	"encoding/json"
	"io"
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/status"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/sync/health"
)

// BenchmarkAnswer is the processor's time for an answer with its JSON, with 10,000 Services.
func BenchmarkAnswer(b *testing.B) {
	v := bigView(b)
	one := model.NamespacedName{Namespace: "ns-17", Name: "service-5017"}
	for name, answer := range map[string]func() any{
		"status":      func() any { var o status.Overview; v.AddTo(&o, health.Status{}); return o },
		"services":    func() any { return v.Services(status.Filter{}, 0) },
		"search":      func() any { return v.Services(status.Filter{Search: "service-50"}, 100) },
		"first page":  func() any { return v.Services(status.Filter{}, 100) },
		"one service": func() any { of, _ := v.One(one, status.Found{}); return of },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := json.NewEncoder(io.Discard).Encode(answer()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRound is the part of a round that notes a change of one Service, among 10,000.
func BenchmarkRound(b *testing.B) {
	w := newWorld()
	modeltest.Feed(w.Builder, modeltest.Cluster(10_000, 10))
	w.round(1)
	versions := [...]modeltest.Slice{modeltest.ClusterSlice(5000, 11, 0), modeltest.ClusterSlice(5000, 10, 0)}
	snapshots := [2]*model.Snapshot{}
	for i := range snapshots {
		versions[i].Set(w.Builder)
		snapshots[i] = w.Snapshot()
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		w.ends(snapshots[i%2], i)
	}
}
