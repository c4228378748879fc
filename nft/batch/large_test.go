package batch_test

import (
	"slices"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft/batch"
	"github.com/vmapd/vmapd/nft/compile"
)

// A change of tens of thousands of elements, with other Services' in between.
func TestALargeChange(t *testing.T) {
	b := model.NewBuilder(modeltest.Config())
	modeltest.Feed(b, modeltest.Cluster(50, 3))
	modeltest.Hostile{Ports: 60, Endpoints: 1000}.Set(b)
	have := compile.Options{}.Compile(nil, b.Snapshot().Family(model.IPv4))

	modeltest.Hostile{Ports: 60, Endpoints: 2000}.Set(b) // half of the ports are over the budget now
	for i := range 20 {
		modeltest.ClusterService(i).Delete(b)
	}
	for i := 20; i < 40; i++ {
		modeltest.ClusterSlice(i, 7, 0).Set(b)
	}
	want := compile.Options{}.Compile(have, b.Snapshot().Family(model.IPv4))
	changes := batch.Diff(have, want)
	checkApplied(t, have, changes, want)
	if deleted, added := len(flat(changes.Delete)), len(flat(changes.Add)); deleted < 20_000 || added < 20_000 {
		t.Fatalf("%d elements are deleted and %d added, want 20,000 each", deleted, added)
	}
	got := elementsOf(t, have)
	pieces := slices.Collect(changes.Pieces(5_000))
	for _, p := range pieces {
		got = got.apply(t, p)
	}
	equal(t, "elements after all pieces", elementsOf(t, want), got)
}
