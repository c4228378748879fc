package batch_test

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
	"github.com/vmapd/vmapd/nft/compile"
	"github.com/vmapd/vmapd/nft/nftsim"
)

// applyTable does with a table what the kernel does with a transaction. Sets that are deleted stay.
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
	for _, name := range b.DeleteChains {
		delete(chains, name)
	}
	return &nft.Table{
		Family: table.Family, Sets: append(slices.Clip(table.Sets), b.AddSets...),
		Flowtables: append(slices.Clip(table.Flowtables), b.AddFlowtables...),
		Timeouts:   append(slices.Clip(table.Timeouts), b.AddTimeouts...), Chains: slices.Collect(maps.Values(chains)),
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

// checkPieces carries out batches, which turn a table into that of a ruleset. After each transaction, each connection goes
// where it went before all or where it goes after all, see withSources. It reports whether frontends were in several.
func checkPieces(
	t *testing.T, table *nft.Table, batches iter.Seq[*batch.Batch], want *compile.Ruleset, node []netip.Addr, connections []model.Connection,
) (split bool) {
	t.Helper()
	before, after := sentTo(t, table, node, connections), sentTo(t, want.Table(), node, connections)
	services, n := 0, 0
	for b := range batches {
		for part := range b.Transactions() {
			n++
			next := applyTable(t, table, part)
			got := sentTo(t, next, node, connections)
			for k, c := range connections {
				if !cmp.Equal(got[k], before[k], sameOutcome) && !cmp.Equal(withSources(before[k], got[k], after[k]), after[k], sameOutcome) {
					t.Fatalf("%+v, after transaction %d\nbefore: %+v\nnow: %+v\nafter: %+v\nthe transaction:\n%s", c, n,
						before[k], got[k], after[k], part)
				}
			}
			if table = next; len(elementsIn(part, nft.ServiceIPs)) > 0 {
				services++
			}
		}
	}
	wanted, got := unpack(want.Table()), unpack(table)
	for _, set := range want.AllSets() {
		if !maps.Equal(wanted[set.Name], got[set.Name]) {
			t.Errorf("%s, after all:\n%s", set.Name, cmp.Diff(wanted[set.Name], got[set.Name]))
		}
	}
	checkChains(t, table.Chains, &batch.Batch{}, want)
	return services > 1
}

func elementsIn(b *batch.Batch, set string) []nft.Element {
	var ops []nft.Element
	for _, list := range slices.Concat(b.Delete, b.Add) {
		if list.Set == set {
			ops = append(ops, list.List...)
		}
	}
	return ops
}

func TestEachPieceOfABatchIsSafe(t *testing.T) {
	const steps, perStep = 12, 60
	seeds := uint64(60)
	if testing.Short() {
		seeds = 6 // a seed takes a second
	}
	var split [4]atomic.Int64
	t.Cleanup(func() {
		for i := range split {
			if n := split[i].Load(); (n < int64(seeds)) == (i == 2) {
				t.Errorf("kind %d: frontends were in several pieces %d times", i, n)
			}
		}
	})
	for seed := range seeds {
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
					again := counting(step).Adopt(tableOf(t, have[f]), nil, s.Family(f)) // perhaps with other options
					nothing := &nft.Table{Family: f}
					killed := func() *nft.Table { // as a process leaves it that is ended while it fills a table
						all := slices.Collect(batch.Pieces(nil, want[f], size))
						table := nothing
						for _, b := range all[:len(all)/2] {
							for part := range b.Transactions() {
								table = applyTable(t, table, part)
							}
						}
						return table
					}
					for i, ok := range [...]bool{
						checkPieces(t, tableOf(t, have[f]), slices.Values([]*batch.Batch{batch.Diff(have[f], want[f])}), want[f], node, connections[f]),
						checkPieces(t, tableOf(t, have[f]), batch.Pieces(tableOf(t, have[f]), again, size), again, node, connections[f]),
						checkPieces(t, nothing, batch.Pieces(nil, want[f], size), want[f], node, connections[f]),
						checkPieces(t, killed(), batch.Pieces(killed(), want[f], size), want[f], node, connections[f]),
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
		names = append(names, op.Comment)
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
	add("172.30.0.2", modeltest.NewService("default/a").TCP("https", 443).NodePort(30001))
	add("172.30.0.3", modeltest.NewService("kube-system/a").TCP("https", 443))
	add("172.30.0.4", modeltest.NewService("kube-system/z").UDP("dns", 53).TCP("dns-tcp", 53).TCP("https", 9153))
	add("172.30.0.6", modeltest.NewService("openshift-dns/dns-default").UDP("dns", 53).TCP("dns-tcp", 53))
	add("172.30.0.5", modeltest.NewService("ns1/dns").UDP("dns", 53))
	want := compile.Options{}.Compile(nil, modeltest.Snapshot(modeltest.Config(), objects...).Family(model.IPv4))
	whatComesFirst(t, slices.Collect(batch.Pieces(nil, want, 1)))
}

func whatComesFirst(t *testing.T, pieces []*batch.Batch) {
	t.Helper()
	urgent := []string{
		"default/kubernetes:https", "kube-system/z:dns", "kube-system/z:dns-tcp", "kube-system/z:https",
		"openshift-dns/dns-default:dns", "openshift-dns/dns-default:dns-tcp",
	}
	var names []string
	cidrs, nodePorts := 0, 0
	for _, p := range pieces {
		// An address of a Service has priority over node ports, and may be one of the node.
		if nodePorts += len(elementsIn(p, nft.ServiceNodePorts)); nodePorts > 0 && namesIn(p) != nil {
			t.Error("node ports do not come behind all addresses")
		}
		if cidrs += len(elementsIn(p, nft.ServiceCIDRs)); cidrs > 0 && namesIn(p) != nil {
			t.Error("what drops does not come last")
		}
		names = append(names, namesIn(p)...)
	}
	if !slices.ContainsFunc(pieces[0].SetChains, func(c nft.Chain) bool { return c.Hook == nft.Prerouting }) {
		t.Error("the base chains do not come first")
	}
	testaid.Equal(t, "the first frontends", urgent, slices.Sorted(slices.Values(names[:len(urgent)])))
	testaid.Equal(t, "number of the others", 3, len(names)-len(urgent))
	testaid.Equal(t, "ranges of addresses that are dropped, and node ports", [2]int{1, 1}, [2]int{cidrs, nodePorts})
}

// No piece is large, and there are not too many of them: from nothing, and from a table of which most is missing, as one
// that a process left which was ended in the middle.
func TestPiecesAreBounded(t *testing.T) {
	const services, size, ofExisting = 20_000, 100, 32_000
	builder := model.NewBuilder(modeltest.Config())
	modeltest.Feed(builder, modeltest.Cluster(services, 2))
	want := compile.Options{}.Compile(nil, builder.Snapshot().Family(model.IPv4))
	left := want.Table()
	for set := range left.Elements {
		for i, key := range slices.Sorted(left.Keys(set)) {
			if i%100 > 0 {
				left.Take(set, key)
			}
		}
	}
	for _, tt := range []struct {
		table *nft.Table
		size  int
	}{{nil, size}, {left, ofExisting}} {
		total, pieces := 0, 0
		for p := range batch.Pieces(tt.table, want, size) {
			n := p.Len()
			if total += n; n > 2*tt.size {
				t.Errorf("a piece of %d operations, want about %d", n, tt.size)
			}
			pieces++
		}
		if most := total/tt.size + 3; pieces > most || total < services*3 {
			t.Errorf("%d pieces of %d operations, want at most %d", pieces, total, most)
		}
	}
}

// A process may end between two pieces. Endpoints to which no frontend leads can't be asked for at the next start: a map
// of many must be listed, for which the kernel walks it from its beginning for each piece of the list.
func TestAServiceIsInOnePieceIfItFits(t *testing.T) {
	const services, endpoints, size = 50, 30, 100
	builder := model.NewBuilder(modeltest.Config())
	modeltest.Feed(builder, modeltest.Cluster(services, endpoints))
	want := compile.Options{}.Compile(nil, builder.Snapshot().Family(model.IPv4))
	pieces, total := 0, 0
	for p := range batch.Pieces(nil, want, size) {
		n := len(elementsIn(p, nft.FrontendsOf(model.ClusterIP).Endpoints[model.Cluster]))
		if n%endpoints != 0 {
			t.Errorf("a piece has %d endpoints, %d of a Service", n, n%endpoints)
		}
		pieces, total = pieces+1, total+n
	}
	if total != services*endpoints || pieces < total/2/size {
		t.Errorf("%d endpoints in %d pieces, want %d", total, pieces, services*endpoints)
	}
}
