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
				whole := batch.Diff(have, want)
				var all batch.Batch
				for part := range whole.Transactions() {
					if isAhead := len(all.Add)+len(all.Delete)+len(part.Add)+len(part.Delete) == 0; isAhead {
						for _, c := range part.SetChains {
							if len(whole.Add) > 0 && (!part.NewChain(c.Name) || c.Hook != nft.NoHook && !strings.HasPrefix(c.Name, "remember-")) {
								t.Errorf("chain %s goes ahead", c.Name)
							}
						}
					}
					all.Add, all.Delete = append(all.Add, part.Add...), append(all.Delete, part.Delete...)
					all.SetChains = append(all.SetChains, part.SetChains...)
				}
				equal(t, "additions", opTexts(want, whole.Add), opTexts(want, all.Add))
				equal(t, "chains", len(whole.SetChains), len(all.SetChains))
				equal(t, "deletions", opTexts(want, whole.Delete), opTexts(want, all.Delete))
			})
		})
	}
}

func opTexts(r *compile.Ruleset, ops []batch.Elements) []string {
	list := []string{}
	for _, op := range flat(ops) {
		list = append(list, op.Set+" "+text(r, op.Set, op.Element))
	}
	slices.Sort(list)
	return list
}
