package batch_test

import (
	"fmt"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft/batch"
	"github.com/vmapd/vmapd/nft/compile"
)

// A change of tens of thousands of elements, with other Services' in between.
func TestALargeChange(t *testing.T) {
	c := modeltest.Config()
	c.Budgets.Entries = 1 << 16
	b := model.NewBuilder(c)
	modeltest.Feed(b, modeltest.Cluster(50, 3))
	setHostile(b, 1000)
	have := compile.Options{}.Compile(nil, b.Snapshot().Family(model.IPv4))

	setHostile(b, 2000) // half of the ports are over the budget now
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
	for p := range changes.Transactions() {
		got = got.apply(t, p)
	}
	equal(t, "elements after all transactions", elementsOf(t, want), got)
}

// setHostile sets a Service that multiplies 60 ports and a number of endpoints, in slices of 1,000.
func setHostile(b *model.Builder, endpoints int) {
	service := modeltest.NewService("tenant/hostile").On("172.30.9.9")
	for i := range 60 {
		service = service.TCP(fmt.Sprintf("p%d", i), int32(i+1))
	}
	service.Set(b)
	for first := 0; first < endpoints; first += 1000 {
		slice := modeltest.NewSlice(fmt.Sprintf("tenant/hostile-%d", first), "hostile")
		for i := range 60 {
			slice = slice.TCP(fmt.Sprintf("p%d", i), int32(i+1))
		}
		for i := first; i < first+1000; i++ {
			slice = slice.Local(modeltest.Pod(model.IPv4, 1<<20+i).String())
		}
		slice.Set(b)
	}
}
