package batch_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
	"github.com/vmapd/vmapd/nft/compile"
)

// big is a Service with so many endpoints, from one slice, that anything else than what
// differs would show.
const big = 5000

func bigSlice(pods ...int) modeltest.Slice {
	s := modeltest.NewSlice("ns1/big-1", "big").TCP("http", 8080)
	for _, n := range pods {
		s.Endpoints = append(s.Endpoints, model.SliceEndpoint{
			Addresses: []string{modeltest.Pod(model.IPv4, n).String()}, NodeName: "node-2",
		})
	}
	return s
}

func upTo(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// One endpoint changes among 5,000. The verdict element of a frontend says from how many to
// how many there are: only a change beyond that exchanges it, by a deletion and an addition.
func TestAChangeOfOneEndpointIsAHandfulOfOperations(t *testing.T) {
	all := upTo(big)
	without := func(i int) []int { return slices.Delete(slices.Clone(all), i, i+1) }
	replaced := slices.Clone(all)
	replaced[2500] = 7000
	for _, tt := range []struct {
		name                     string
		before, after            []int
		wantChains, wantAdd, del int
		nodePort                 bool
	}{
		{"nothing changes", all, all, 0, 0, 0, false},
		{"one more, behind all others: its slot", all, upTo(big + 1), 0, 1, 0, false},
		{"one more, before all others by address, takes the last slot all the same", all[1:], all, 0, 1, 0, false},
		{"the last one less: its slot", all, without(big - 1), 0, 0, 1, false},
		{"one less in the middle: the last one fills the hole", all, without(2500), 0, 1, 2, false},
		{"the first one less", all, without(0), 0, 1, 2, false},
		{"the first one: its slot", nil, upTo(1), 0, 1, 0, false},
		{"the last of all", upTo(1), nil, 0, 0, 1, false},
		{"more than 4,096: the slot, the verdict, a chain", upTo(4096), upTo(4097), 1, 2, 1, false},
		{"and back", upTo(4097), upTo(4096), 1, 1, 2, false},
		{"one replaced: no verdict changes", all, replaced, 0, 1, 1, false},
		{"one more, with a node port: twice", all, upTo(big + 1), 0, 2, 0, true},
		{"more than 4,096, with a node port: twice", upTo(4096), upTo(4097), 2, 4, 2, true},
		{"one replaced, with a node port: twice", all, replaced, 0, 2, 2, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			service := modeltest.NewService("ns1/big").On("172.30.0.41").TCP("http", 80)
			if tt.nodePort {
				service = service.NodePort(30001)
			}
			b := modeltest.Builder(modeltest.Config(), service, bigSlice(tt.before...), modeltest.OurNode())
			modeltest.Feed(b, modeltest.Cluster(20, 3))
			have := compile.Options{}.Compile(nil, b.Snapshot().Family(model.IPv4))
			bigSlice(tt.after...).Set(b)
			want := compile.Options{}.Compile(have, b.Snapshot().Family(model.IPv4))
			changes := batch.Diff(have, want)
			testaid.Equal(t, "chains set", tt.wantChains, len(changes.SetChains))
			testaid.Equal(t, "elements added", tt.wantAdd, len(flat(changes.Add)))
			testaid.Equal(t, "elements deleted", tt.del, len(flat(changes.Delete)))
			testaid.Equal(t, "operations", tt.wantChains+tt.wantAdd+tt.del, changes.Len())
			checkApplied(t, have, changes, want)
			if t.Failed() && changes.Len() < 50 {
				t.Logf("batch:\n%s", changes)
			}
		})
	}
}

func TestCompileAdoptsTheOrderOfATable(t *testing.T) {
	b := modeltest.Builder(modeltest.Config(), modeltest.NewService("ns1/big").On("172.30.0.41").External("192.168.99.11").
		TCP("http", 80).NodePort(30001), bigSlice(5, 6, 7, 8, 9))
	first := compile.Options{}.Compile(nil, b.Snapshot().Family(model.IPv4))
	bigSlice(6, 7, 8, 1, 9).Set(b) // by address 1 is the first now, but it takes the slot of 5
	bigSlice(6, 8, 1).Set(b)
	second := compile.Options{}.Compile(first, b.Snapshot().Family(model.IPv4))
	checkApplied(t, first, batch.Diff(first, second), second)

	fresh := compile.Options{}.Compile(nil, b.Snapshot().Family(model.IPv4))
	if batch.DiffTable(tableOf(t, second), fresh).Empty() {
		t.Fatal("this test shows nothing: the slots are as a compilation from nothing chooses them")
	}
	adopted := compile.Options{}.Adopt(tableOf(t, second), nil, b.Snapshot().Family(model.IPv4))
	changes := batch.DiffTable(tableOf(t, second), adopted)
	testaid.Equal(t, "chains deleted", []string{"endpoints-5-to-8", "nodeport-endpoints-5-to-8"}, changes.DeleteChains)
	testaid.Equal(t, "operations but for those", 0, changes.Len()-len(changes.DeleteChains))
	testaid.Equal(t, "elements", elementsOf(t, second), elementsOf(t, adopted))

	t.Run("frontends of one port that differ in their order are brought in line", func(t *testing.T) {
		table := tableOf(t, second)
		changed := elementsOf(t, second)
		slots := changed[nft.NodePortEndpoints]
		var keys []string
		for key := range slots {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		a, c := slots[keys[0]], slots[keys[1]]
		a.Data, c.Data = c.Data, a.Data
		slots[keys[0]], slots[keys[1]] = a, c
		table.Elements = changed.pack(t)
		adopted := compile.Options{}.Adopt(table, nil, b.Snapshot().Family(model.IPv4))
		changes := batch.DiffTable(table, adopted)
		testaid.Equal(t, "elements deleted and added", []int{2, 2}, []int{len(flat(changes.Delete)), len(flat(changes.Add))})
		testaid.Equal(t, "elements", elementsOf(t, adopted), changed.apply(t, changes))
	})
}

func TestDiffTableReplacesAnotherLayout(t *testing.T) {
	want := compile.Options{}.Compile(nil, modeltest.Snapshot(modeltest.Config(), modeltest.OurNode()).Family(model.IPv4))
	for _, tt := range []struct {
		name   string
		change func(table *nft.Table)
		anew   bool
		sets   []string // deleted
		add    int      // sets added
	}{
		{"a set more is deleted", func(t *nft.Table) {
			t.Sets = append(slices.Clip(t.Sets), nft.Set{Name: "x", Key: []nft.Type{nft.Addr}})
		}, false, []string{"x"}, 0},
		{"one of an earlier version, whose name is now that of a map, too", func(t *nft.Table) {
			t.Sets = append(slices.Clip(t.Sets), nft.Set{Name: "affinity-both-ns1/s/tcp/http", Key: []nft.Type{nft.Addr, nft.Service}})
		}, false, []string{"affinity-both-ns1/s/tcp/http"}, 0},
		{"a set less is added", func(t *nft.Table) { t.Sets = t.Sets[1:] }, false, nil, 1},
		{"a set with another key means another layout", func(t *nft.Table) {
			t.Sets = slices.Clone(t.Sets)
			t.Sets[0].Key = []nft.Type{nft.Proto}
		}, true, nil, len(want.AllSets())},
		{"a set that lost its intervals, too", func(t *nft.Table) {
			t.Sets = slices.Clone(t.Sets)
			for i := range t.Sets {
				t.Sets[i].Interval = false
			}
		}, true, nil, len(want.AllSets())},
	} {
		t.Run(tt.name, func(t *testing.T) {
			table := tableOf(t, want)
			tt.change(table)
			changes := batch.DiffTable(table, want)
			testaid.Equal(t, "begins anew", []bool{tt.anew, tt.anew}, []bool{changes.DeleteTable, changes.CreateTable})
			testaid.Equal(t, "sets deleted", tt.sets, changes.DeleteSets)
			testaid.Equal(t, "sets added", tt.add, len(changes.AddSets))
		})
	}

	t.Run("a rule that we would not write is replaced with its chain", func(t *testing.T) {
		table := tableOf(t, want)
		table.Chains = slices.Clone(table.Chains)
		i := slices.IndexFunc(table.Chains, func(c nft.Chain) bool { return c.Name == "services" })
		table.Chains[i].Rules = append(slices.Clip(table.Chains[i].Rules), nft.Rule{nft.ReadRule{}})
		changes := batch.DiffTable(table, want)
		testaid.Equal(t, "operations", 1, changes.Len())
		checkChains(t, table.Chains, changes, want)
	})

	for name, change := range map[string]func(*nft.Chain){
		"at another priority":  func(c *nft.Chain) { c.Prio = -99 },
		"with the policy drop": func(c *nft.Chain) { c.Drop = true },
		"that filters":         func(c *nft.Chain) { c.Filter = true },
		"on another hook":      func(c *nft.Chain) { c.Hook = nft.Input },
	} {
		t.Run("a base chain "+name+" is made anew", func(t *testing.T) {
			table := tableOf(t, want)
			table.Chains = slices.Clone(table.Chains)
			change(&table.Chains[slices.IndexFunc(table.Chains, func(c nft.Chain) bool { return c.Name == "output" })])
			changes := batch.DiffTable(table, want)
			testaid.Equal(t, "chains made anew", []string{"output"}, changes.RemakeBase)
			testaid.Equal(t, "operations", 1, changes.Len())
		})
	}

	t.Run("a dormant table is woken", func(t *testing.T) {
		table := tableOf(t, want)
		table.Dormant = true
		testaid.Equal(t, "the batch", "add table ip vmapd { comment \"Kubernetes Services, by vmapd\"; }\n", batch.DiffTable(table, want).String())
	})
}

func BenchmarkCompile(b *testing.B) {
	for _, services := range []int{100, 1000, 10_000} {
		builder := model.NewBuilder(modeltest.Config())
		modeltest.Feed(builder, modeltest.Cluster(services, 2))
		s := builder.Snapshot().Family(model.IPv4)
		b.Run(fmt.Sprintf("%d services", services), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				batch.DiffTable(nil, compile.Options{}.Compile(nil, s))
			}
		})
	}
}

func BenchmarkOneEndpoint(b *testing.B) {
	for _, services := range []int{100, 1000, 10_000} {
		builder := model.NewBuilder(modeltest.Config())
		modeltest.Feed(builder, modeltest.Cluster(services, 2))
		have := compile.Options{}.Compile(nil, builder.Snapshot().Family(model.IPv4))
		name := modeltest.ClusterService(7).NamespacedName
		b.Run(fmt.Sprintf("%d services", services), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				modeltest.NewSlice(name.String()+"-x", name.Name).TCP("http", 8080).
					Ready("10.9.0.1", modeltest.Pod(model.IPv4, 1_000_000+i%2).String()).Set(builder)
				want := compile.Options{}.Compile(have, builder.Snapshot().Family(model.IPv4))
				if batch.Diff(have, want).Empty() {
					b.Fatal("nothing changed")
				}
				have = want
			}
		})
	}
}
