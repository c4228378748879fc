package nft_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
)

func TestOnlyWhatNothingRefersToGoesAhead(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := modeltest.NewRandom(modeltest.Seed(seed))
			history(t, r, modeltest.Config(), 20, func(have, want *nft.Ruleset, _ *model.FamilySnapshot) {
				whole, rest := nft.Diff(have, want), nft.Diff(have, want)
				size := 1 + r.IntN(5)
				var ahead []nft.SetOps
				var chains []nft.Chain
				for _, piece := range rest.Ahead(size) {
					if n := len(flat(piece.Add)); n > size || n == 0 && len(piece.SetChains) == 0 {
						t.Errorf("a piece of %d elements, want 1 to %d", n, size)
					}
					if len(piece.SetChains) > 0 && len(ahead) > 0 {
						t.Error("chains come after elements")
					}
					for _, c := range piece.SetChains {
						if c.Hook != nft.NoHook || !piece.NewChain(c.Name) {
							t.Errorf("chain %s goes ahead", c.Name)
						}
					}
					chains = append(chains, piece.SetChains...)
					ahead = append(ahead, piece.Add...)
				}
				equal(t, "additions, ahead and rest", opTexts(want, whole.Add), opTexts(want, append(slices.Clone(ahead), rest.Add...)))
				equal(t, "chains, ahead and rest", len(whole.SetChains), len(chains)+len(rest.SetChains))
				equal(t, "deletions", opTexts(want, whole.Delete), opTexts(want, rest.Delete))

				// What goes ahead meets the old table: each key is free there, and beyond
				// the number of slots that the old verdict chooses from.
				before := elementsOf(t, have)
				between := before.apply(t, &nft.Batch{Add: ahead})
				for _, op := range flat(ahead) {
					dispatch, local := nft.ServiceIPs, false
					switch op.Set {
					case nft.ServiceCounters, nft.NodePortCounters:
						continue // decide nothing
					case nft.Endpoints:
					case nft.LocalEndpoints:
						local = true
					case nft.NodePortEndpoints:
						dispatch = nft.ServiceNodePorts
					case nft.NodePortLocalEndpoints:
						dispatch, local = nft.ServiceNodePorts, true
					default:
						t.Errorf("an element of %s goes ahead", op.Set)
					}
					verdict := before[dispatch][op.Element.Key[:len(op.Element.Key)-4]].Verdict
					n, onNode := slotsOf(t, verdict.Chain)
					if local {
						n = onNode
					}
					for slot := range n {
						if strings.HasSuffix(op.Element.Key, string(nft.AppendSlot(nil, uint32(slot)))) {
							t.Errorf("slot %d goes ahead, but %v chooses it", slot, verdict)
						}
					}
				}
				equal(t, "elements after both", elementsOf(t, want), between.apply(t, rest))
			})
		})
	}
}

func opTexts(r *nft.Ruleset, ops []nft.SetOps) []string {
	list := []string{}
	for _, op := range flat(ops) {
		list = append(list, op.Set+" "+text(r, op.Set, op.Element))
	}
	slices.Sort(list)
	return list
}

// What is left out of a batch for one service port must leave the others complete.
func TestABatchCanDoWithoutAServicePort(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := modeltest.NewRandom(modeltest.Seed(seed))
			history(t, r, modeltest.Config(), 20, func(have, want *nft.Ruleset, _ *model.FamilySnapshot) {
				batch := nft.Diff(have, want)
				names := map[model.ServicePortName]bool{}
				for _, op := range flat(append(slices.Clone(batch.Add), batch.Delete...)) {
					owned := op.Set != nft.ClusterIPs && op.Set != nft.Hairpin && op.Set != nft.NodePortIPs && op.Set != nft.ServiceCIDRs
					if owned != (op.Port != nil) {
						t.Errorf("%s: belongs to %v", op.Set, op.Port)
					}
					if op.Port != nil && r.IntN(2) == 0 {
						names[op.Port.Name] = true
					}
				}
				batch.Without(names)
				for _, op := range flat(append(slices.Clone(batch.Add), batch.Delete...)) {
					if op.Port != nil && names[op.Port.Name] {
						t.Errorf("%s: still there for %v", op.Set, op.Port.Name)
					}
				}
				elementsOf(t, have).apply(t, batch)
			})
		})
	}
}
