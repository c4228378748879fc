package batch_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
	"github.com/vmapd/vmapd/nft/compile"
)

func TestOnlyWhatDecidesNothingGoesAhead(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := modeltest.NewRandom(modeltest.Seed(seed))
			history(t, r, modeltest.Config(), 20, func(have, want *compile.Ruleset, _ *model.FamilySnapshot) {
				whole, rest := batch.Diff(have, want), batch.Diff(have, want)
				pieces := slices.Collect(rest.Pieces(1))
				if len(pieces) > 2 || pieces[len(pieces)-1] != rest {
					t.Fatalf("%d pieces", len(pieces))
				}
				chains := 0
				for _, ahead := range pieces[:len(pieces)-1] {
					if len(ahead.Add)+len(ahead.Delete) > 0 {
						t.Errorf("elements go ahead:\n%s", ahead)
					}
					for _, c := range ahead.SetChains {
						if !ahead.NewChain(c.Name) || c.Hook != nft.NoHook && !strings.HasPrefix(c.Name, "remember-") {
							t.Errorf("chain %s goes ahead", c.Name)
						}
					}
					chains += len(ahead.SetChains)
				}
				equal(t, "additions", opTexts(want, whole.Add), opTexts(want, rest.Add))
				equal(t, "chains, ahead and rest", len(whole.SetChains), chains+len(rest.SetChains))
				equal(t, "deletions", opTexts(want, whole.Delete), opTexts(want, rest.Delete))
			})
		})
	}
}

func opTexts(r *compile.Ruleset, ops []batch.SetOps) []string {
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
			history(t, r, modeltest.Config(), 20, func(have, want *compile.Ruleset, _ *model.FamilySnapshot) {
				changes := batch.Diff(have, want)
				names := map[model.ServicePortName]bool{}
				for _, op := range flat(append(slices.Clone(changes.Add), changes.Delete...)) {
					owned := op.Set != nft.ClusterIPs && op.Set != nft.Hairpin && op.Set != nft.NodePortIPs && op.Set != nft.ServiceCIDRs
					if owned != (op.Port != nil) {
						t.Errorf("%s: belongs to %v", op.Set, op.Port)
					}
					if op.Port != nil && r.IntN(2) == 0 {
						names[op.Port.Name] = true
					}
				}
				changes.Without(names)
				for _, op := range flat(append(slices.Clone(changes.Add), changes.Delete...)) {
					if op.Port != nil && names[op.Port.Name] {
						t.Errorf("%s: still there for %v", op.Set, op.Port.Name)
					}
				}
				elementsOf(t, have).apply(t, changes)
			})
		})
	}
}
