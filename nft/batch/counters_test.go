package batch_test

import (
	"slices"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
	"github.com/vmapd/vmapd/nft/compile"
)

var counted = compile.Options{Counters: true}

// counterOps are a batch's operations on counters, as text.
func counterOps(r *compile.Ruleset, lists []batch.Elements) []string {
	list := []string{}
	for _, op := range flat(lists) {
		if op.Set == nft.ServiceCounters || op.Set == nft.NodePortCounters {
			list = append(list, text(r, op.Set, op.Element))
		}
	}
	slices.Sort(list)
	return list
}

// An element that is deleted and added again begins at 0, so each change is worth knowing.
func TestACounterStaysAsLongAsItsFrontend(t *testing.T) {
	web := modeltest.NewService("ns1/web").On("172.30.0.41").TCP("http", 80).NodePort(30001)
	slice := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Local("10.0.0.2")
	for _, tt := range []struct {
		name     string
		change   func(b *model.Builder)
		del, add []string
	}{
		{"more endpoints", func(b *model.Builder) { slice.Ready("10.0.0.3", "10.0.0.4").Set(b) }, nil, nil},
		{"none", func(b *model.Builder) { slice.Delete(b) }, nil, nil},
		{"another policy", func(b *model.Builder) { web.Policies("Cluster", "Local").Set(b) }, nil, nil},
		{"affinity", func(b *model.Builder) { web.Sticky(60).Set(b) }, nil, nil},
		{"the node's address", func(b *model.Builder) { modeltest.NewNode("node-1", "192.168.0.3").Set(b) }, nil, nil},
		{
			"one more address", func(b *model.Builder) { web.External("192.168.99.11").Set(b) },
			nil,
			[]string{`192.168.99.11 . tcp . 80 counter comment "ns1/web:http"`},
		},
		{
			"another node port",
			func(b *model.Builder) {
				modeltest.NewService("ns1/web").On("172.30.0.41").TCP("http", 80).NodePort(30002).Set(b)
			},
			[]string{`tcp . 30001 counter comment "ns1/web:http"`},
			[]string{`tcp . 30002 counter comment "ns1/web:http"`},
		},
		{
			"it is deleted", func(b *model.Builder) { web.Delete(b) },
			[]string{`172.30.0.41 . tcp . 80 counter comment "ns1/web:http"`, `tcp . 30001 counter comment "ns1/web:http"`},
			nil,
		},
		{
			"its address goes over to another Service: what was counted before is not that one's",
			func(b *model.Builder) {
				web.Delete(b)
				modeltest.NewService("ns1/next").On("172.30.0.41").TCP("", 80).Set(b)
			},
			[]string{`172.30.0.41 . tcp . 80 counter comment "ns1/web:http"`, `tcp . 30001 counter comment "ns1/web:http"`},
			[]string{`172.30.0.41 . tcp . 80 counter comment "ns1/next"`},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := modeltest.Builder(modeltest.Config(), modeltest.OurNode(), web, slice)
			modeltest.Feed(b, modeltest.Cluster(20, 3))
			have := counted.Compile(nil, b.Snapshot().Family(model.IPv4))
			tt.change(b)
			want := counted.Compile(have, b.Snapshot().Family(model.IPv4))
			changes := batch.Diff(have, want)
			if changes.Empty() {
				t.Error("nothing changes")
			}
			equal(t, "deleted", append([]string{}, tt.del...), counterOps(want, changes.Delete))
			equal(t, "added", append([]string{}, tt.add...), counterOps(want, changes.Add))
			checkApplied(t, have, changes, want)

			// What another process finds at its start is no other change.
			changes = batch.DiffTable(tableOf(t, have), want)
			equal(t, "deleted after a restart", append([]string{}, tt.del...), counterOps(want, changes.Delete))
			equal(t, "added after a restart", append([]string{}, tt.add...), counterOps(want, changes.Add))
		})
	}
}

// To begin to count at a restart is a set and a rule for each kind of frontend, and an element for each frontend; to end
// it takes away the sets with all that is in them.
func TestCountingIsSwitchedWithoutAnythingElse(t *testing.T) {
	s := modeltest.DualStack().Snapshot().Family(model.IPv4)
	off := compile.Options{}.Compile(nil, s)
	on := counted.Adopt(tableOf(t, off), nil, s)
	elements := 0
	for sp := range s.ServicePorts() {
		elements += len(sp.Frontends)
	}
	changes := batch.DiffTable(tableOf(t, off), on)
	checkApplied(t, off, changes, on)
	equal(t, "sets made", 2, len(changes.AddSets))
	equal(t, "elements", elements, len(flat(changes.Add)))
	equal(t, "operations: those, and the rules of a chain", 2+elements+1, changes.Len())

	again := compile.Options{}.Adopt(tableOf(t, on), nil, s)
	changes = batch.DiffTable(tableOf(t, on), again)
	checkApplied(t, on, changes, again)
	equal(t, "sets deleted", []string{nft.NodePortCounters, nft.ServiceCounters}, changes.DeleteSets)
	equal(t, "operations: those, and the rules of a chain", 2+1, changes.Len())
	equal(t, "text as before", off.Table().String(), again.Table().String())
}
