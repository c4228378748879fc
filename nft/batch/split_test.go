package batch_test

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
	"github.com/vmapd/vmapd/nft/compile"
	"github.com/vmapd/vmapd/nft/nftsim"
)

// applyTable does with a table what the kernel does with a batch; its sets are made before,
// and what goes behind it is left.
func applyTable(t *testing.T, table *nft.Table, b *batch.Batch) *nft.Table {
	t.Helper()
	chains := map[string]nft.Chain{}
	for _, c := range table.Chains {
		chains[c.Name] = c
	}
	for _, c := range b.SetChains {
		if _, ok := chains[c.Name]; ok == b.NewChain(c.Name) && !slices.Contains(b.RemakeBase, c.Name) {
			t.Fatalf("chain %s: there is %v, new is %v", c.Name, ok, b.NewChain(c.Name))
		}
		chains[c.Name] = c
	}
	return &nft.Table{
		Family: table.Family, Sets: table.Sets, Flowtables: table.Flowtables, Timeouts: table.Timeouts, Chains: slices.Collect(maps.Values(chains)),
		Elements: unpack(table).apply(t, &batch.Batch{Delete: b.Delete, Add: b.Add}).pack(t),
	}
}

// sentTo returns the outcomes of some connections, without counters and traces.
func sentTo(t *testing.T, table *nft.Table, node []netip.Addr, connections []model.Connection) []modeltest.Outcome {
	t.Helper()
	sim, err := nftsim.New(table, node...)
	if err != nil {
		t.Fatalf("the table is not sound: %v", err)
	}
	outcomes := make([]modeltest.Outcome, len(connections))
	for i, c := range connections {
		o, err := sim.Run(c)
		if err != nil {
			t.Fatal(err)
		}
		for to, a := range o.To {
			if to.Addr() == c.Source {
				a.Masquerade = false // without it, a connection to oneself never worked
			}
			o.To[to] = a
		}
		outcomes[i] = o.Outcome
		outcomes[i].Trace = nil
	}
	return outcomes
}

var sameOutcome = cmp.Options{
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
	cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }),
}

// checkPieces sends a batch in pieces. After each of them, each connection goes where it went
// before all or where it goes after all, see withSources.
func checkPieces(t *testing.T, table *nft.Table, changes, whole *batch.Batch, size int, node []netip.Addr, connections []model.Connection) (split bool) {
	t.Helper()
	table = &nft.Table{
		Family: table.Family, Sets: append(slices.Clone(table.Sets), changes.AddSets...),
		Flowtables: append(slices.Clone(table.Flowtables), changes.AddFlowtables...),
		Timeouts:   append(slices.Clone(table.Timeouts), changes.AddTimeouts...),
		Chains:     table.Chains, Elements: table.Elements,
	}
	wantTable := applyTable(t, table, whole)
	before, after := sentTo(t, table, node, connections), sentTo(t, wantTable, node, connections)
	pieces := slices.Collect(changes.Pieces(size))
	services := 0
	for i, piece := range pieces {
		next := applyTable(t, table, piece)
		got := sentTo(t, next, node, connections)
		for k, c := range connections {
			if !cmp.Equal(got[k], before[k], sameOutcome) && !cmp.Equal(withSources(before[k], got[k], after[k]), after[k], sameOutcome) {
				t.Fatalf("%+v, after piece %d of %d\nbefore: %+v\nnow: %+v\nafter: %+v\nthe piece:\n%s", c, i+1, len(pieces),
					before[k], got[k], after[k], piece)
			}
		}
		if table = next; len(elementsIn(piece, nft.ServiceIPs)) > 0 {
			services++
		}
	}
	wanted, got := unpack(wantTable), unpack(table)
	for _, set := range wantTable.Sets {
		if !maps.Equal(wanted[set.Name], got[set.Name]) {
			t.Errorf("%s, after all pieces:\n%s", set.Name, cmp.Diff(wanted[set.Name], got[set.Name]))
		}
	}
	equal(t, "number of chains", len(wantTable.Chains), len(table.Chains))
	return services > 1
}

func elementsIn(b *batch.Batch, set string) []nft.ElementOp {
	var ops []nft.ElementOp
	for _, list := range slices.Concat(b.Delete, b.Add) {
		if list.Set == set {
			ops = append(ops, list.Ops...)
		}
	}
	return ops
}

func TestEachPieceOfABatchIsSafe(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: takes a minute")
	}
	const seeds, steps, perStep = 60, 12, 60
	var split [3]atomic.Int64
	t.Cleanup(func() {
		for i := range split {
			if n := split[i].Load(); (n < seeds) == (i == len(split)-1) {
				t.Errorf("kind %d: frontends were in several pieces %d times", i, n)
			}
		}
	})
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			r := modeltest.NewRandom(modeltest.Seed(seed))
			b := model.NewBuilder(configs[seed%uint64(len(configs))])
			old := b.Snapshot()
			o := counting(int(seed))
			have := compileAll(o, old, nil)
			for step := range steps {
				r.Steps(b, 1+r.IntN(12))
				s := b.Snapshot()
				want := compileAll(o, s, &have)
				var connections [len(model.Families)][]model.Connection
				for i := range perStep {
					whose := [...]*model.Snapshot{s, old}[i%2]
					c := modeltest.Connection(r, whose)
					f := model.FamilyOf(c.Dest.Addr())
					connections[f] = append(connections[f], c)
				}
				for _, f := range model.Families {
					size, node := 1+r.IntN(6), s.Family(f).NodeAddrs
					table := tableOf(t, have[f])
					again := counting(step).Repair(table, nil, s.Family(f)) // perhaps with other options
					nothing := &nft.Table{Family: f}
					for i, ok := range [...]bool{
						checkPieces(t, table, batch.Diff(have[f], want[f]), batch.Diff(have[f], want[f]), size, node, connections[f]),
						checkPieces(t, table, batch.DiffTable(table, again), batch.DiffTable(table, again), size, node, connections[f]),
						checkPieces(t, nothing, batch.NewTable(want[f], 0), batch.DiffTable(nil, want[f]), size, node, connections[f]),
					} {
						if ok {
							split[i].Add(1)
						}
					}
				}
				have, old = want, s
			}
		})
	}
}

// namesIn are the service ports that a batch makes frontends of, in any order.
func namesIn(b *batch.Batch) []string {
	var names []string
	for _, op := range elementsIn(b, nft.ServiceIPs) {
		names = append(names, op.Port.Name.String())
	}
	slices.Sort(names)
	return names
}

func TestWhatAClusterNeedsFirstComesFirst(t *testing.T) {
	objects := []modeltest.Object{modeltest.OurNode(), modeltest.NewServiceCIDR("kubernetes", "172.30.0.0/16")}
	add := func(ip string, s modeltest.Service) {
		objects = append(objects, s.On(ip),
			modeltest.NewSlice(s.NamespacedName.String()+"-1", s.NamespacedName.Name).TCP("https", 6443).UDP("dns", 5353).TCP("dns-tcp", 5353).Ready("10.0.0.3"))
	}
	add("172.30.0.1", modeltest.NewService("default/kubernetes").TCP("https", 443))
	add("172.30.0.2", modeltest.NewService("default/a").TCP("https", 443))
	add("172.30.0.3", modeltest.NewService("kube-system/a").TCP("https", 443))
	add("172.30.0.4", modeltest.NewService("kube-system/z").UDP("dns", 53).TCP("dns-tcp", 53).TCP("https", 9153))
	add("172.30.0.6", modeltest.NewService("openshift-dns/dns-default").UDP("dns", 53).TCP("dns-tcp", 53))
	add("172.30.0.5", modeltest.NewService("ns1/dns").UDP("dns", 53))
	want := compile.Options{}.Compile(nil, modeltest.Snapshot(modeltest.Config(), objects...).Family(model.IPv4))
	whatComesFirst(t, slices.Collect(batch.NewTable(want, 0).Pieces(1)))
}

func whatComesFirst(t *testing.T, pieces []*batch.Batch) {
	t.Helper()
	urgent := []string{
		"default/kubernetes:https", "kube-system/z:dns", "kube-system/z:dns-tcp", "kube-system/z:https",
		"openshift-dns/dns-default:dns", "openshift-dns/dns-default:dns-tcp",
	}
	equal(t, "frontends with the base chains", urgent, namesIn(pieces[1]))
	if !slices.ContainsFunc(pieces[1].SetChains, func(c nft.Chain) bool { return c.Hook == nft.Prerouting }) {
		t.Error("the base chains do not come with the first frontends")
	}
	equal(t, "endpoints with them", 6, len(elementsIn(pieces[1], nft.Endpoints)))
	var others [][]string
	for _, p := range pieces[2:] {
		if names := namesIn(p); names != nil {
			others = append(others, names)
		}
	}
	slices.SortFunc(others, slices.Compare)
	equal(t, "the other frontends", [][]string{{"default/a:https"}, {"kube-system/a:https"}, {"ns1/dns:dns"}}, others)
	equal(t, "what drops, last", 1, len(elementsIn(pieces[len(pieces)-1], nft.ServiceCIDRs)))
}

// A large table has no large piece, and not too many of them.
func TestPiecesAreBounded(t *testing.T) {
	const services, size = 3000, 100
	builder := model.NewBuilder(modeltest.Config())
	modeltest.Feed(builder, modeltest.Cluster(services, 2))
	want := compile.Options{}.Compile(nil, builder.Snapshot().Family(model.IPv4))
	total, pieces := 0, 0
	for p := range batch.NewTable(want, size).Pieces(size) {
		n := p.Len()
		if total += n; n > 2*size {
			t.Errorf("a piece of %d operations", n)
		}
		pieces++
	}
	equal(t, "operations of all pieces", batch.DiffTable(nil, want).Len(), total)
	if most := total/size + 3; pieces > most {
		t.Errorf("%d pieces of %d operations, want at most %d", pieces, total, most)
	}
}
