package nft_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/nftsim"
)

// Whatever the pattern in which a program calls Services, each of them takes turns for itself.
func TestServicesTakeTurnsForThemselves(t *testing.T) {
	b, patterns := modeltest.RoundRobin()
	s := b.Snapshot().Family(model.IPv4)
	for name, pattern := range patterns {
		t.Run(name, func(t *testing.T) {
			sim, err := nftsim.New(nft.Compile(nil, s), s.NodeAddrs...)
			if err != nil {
				t.Fatal(err)
			}
			sim.TakeTurns()
			if err := modeltest.CheckTurns(pattern, func(c model.Connection) (netip.AddrPort, error) {
				o, err := sim.Run(c)
				if err == nil && len(o.To) != 1 {
					err = fmt.Errorf("%v goes to %v", c.Dest, o.To)
				}
				for to := range o.To {
					return to, err
				}
				return netip.AddrPort{}, err
			}); err != nil {
				t.Error(err)
			}
		})
	}
}

// The objects of a service port come and go with its round-robin, and nobody else's change.
func TestTurnsComeAndGo(t *testing.T) {
	web := modeltest.NewService("ns1/big").On("172.30.0.41").TCP("http", 80).NodePort(30001).Algorithm("round-robin")
	b := modeltest.Builder(modeltest.Config(), web, bigSlice(1, 2, 3), modeltest.OurNode(),
		modeltest.NewService("ns1/other").On("172.30.0.42").TCP("http", 80).Algorithm("round-robin"),
		modeltest.NewSlice("ns1/other", "other").TCP("http", 8080).Local("10.0.0.2", "10.0.0.3"))
	have := nft.Compile(nil, b.Snapshot().Family(model.IPv4))
	const name = "round-robin-ns1/big/tcp/http"
	for _, step := range []struct {
		name   string
		change modeltest.Object
		sets   []string // made, or with a minus deleted
		chains []string // likewise; those with other rules as well
		ops    int      // elements
	}{
		{"an endpoint is replaced", bigSlice(1, 2, 4), nil, nil, 2},
		{"one more", bigSlice(1, 2, 4, 5), nil, []string{name}, 1},
		{"one alone shares a chain", bigSlice(5), []string{"-" + name}, []string{"endpoints-0-to-2", "nodeport-endpoints-0-to-2", "-" + name}, 6},
		{"none", bigSlice(), nil, nil, 3},
		{"two again", bigSlice(1, 2), []string{name}, []string{name}, 7},
		{"another algorithm", web.Algorithm("random"), []string{"-" + name}, []string{"-" + name}, 8},
		{"and back", web, []string{name}, []string{name}, 10},
		{"the Service is deleted", nil, []string{"-" + name}, []string{"postrouting", "services", "-" + name}, 4},
	} {
		if step.change == nil {
			web.Delete(b)
		} else {
			step.change.Set(b)
		}
		want := nft.Compile(have, b.Snapshot().Family(model.IPv4))
		batch := nft.Diff(have, want)
		checkApplied(t, have, batch, want)
		checkSlots(t, want)
		var sets, chains []string
		for _, s := range batch.AddSets {
			sets = append(sets, s.Name)
		}
		for _, s := range batch.DeleteSets {
			sets = append(sets, "-"+s)
		}
		for _, c := range batch.SetChains {
			chains = append(chains, c.Name)
		}
		for _, c := range batch.DeleteChains {
			chains = append(chains, "-"+c)
		}
		slices.Sort(chains[:len(batch.SetChains)])
		equal(t, step.name+": sets", step.sets, sets)
		equal(t, step.name+": chains", step.chains, chains)
		equal(t, step.name+": elements", step.ops, len(flat(batch.Delete))+len(flat(batch.Add)))
		if t.Failed() {
			t.Fatalf("%s\n%s", step.name, batch)
		}
		have = want
	}
	// A later start finds nothing to do but to delete the chains that are left.
	table := tableOf(t, have)
	again := nft.Compile(table, b.Snapshot().Family(model.IPv4))
	if batch := nft.DiffTable(table, again); batch.Len() != len(batch.DeleteChains) {
		t.Errorf("a restart does\n%s", batch)
	}
}

// The order of the slots is taken over from the kernel at a restart.
func TestTurnsOutliveARestart(t *testing.T) {
	b := modeltest.Builder(modeltest.Config(), modeltest.OurNode(), bigSlice(5, 6, 7),
		modeltest.NewService("ns1/big").On("172.30.0.41").TCP("http", 80).Algorithm("round-robin"))
	first := nft.Compile(nil, b.Snapshot().Family(model.IPv4))
	bigSlice(6, 7, 9).Set(b) // 9 takes the slot of 5
	second := nft.Compile(first, b.Snapshot().Family(model.IPv4))
	if nft.DiffTable(tableOf(t, second), nft.Compile(nil, b.Snapshot().Family(model.IPv4))).Empty() {
		t.Fatal("this test shows nothing: the slots are as a compilation from nothing chooses them")
	}
	adopted := nft.Compile(tableOf(t, second), b.Snapshot().Family(model.IPv4))
	if batch := nft.DiffTable(tableOf(t, second), adopted); !batch.Empty() {
		t.Errorf("a restart does\n%s", batch)
	}
}
