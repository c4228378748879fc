package batch_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
	"github.com/vmapd/vmapd/nft/compile"
	"github.com/vmapd/vmapd/nft/nftsim"
)

// history compiles what a series of random changes leads to, each ruleset after the one
// before it, and calls check with each step.
func history(t *testing.T, r *modeltest.Random, config model.Config, steps int, check func(have, want *compile.Ruleset, s *model.FamilySnapshot)) {
	t.Helper()
	b, o := model.NewBuilder(config), counting(r.IntN(10))
	var have [len(model.Families)]*compile.Ruleset
	for range steps {
		r.Steps(b, 1+r.IntN(4))
		for _, f := range model.Families {
			s := b.Snapshot().Family(f)
			before := have[f]
			if before == nil {
				before = o.Compile(nil, model.NewBuilder(config).Snapshot().Family(f))
			}
			want := o.Compile(before, s)
			check(before, want, s)
			if t.Failed() {
				t.FailNow()
			}
			have[f] = want
		}
	}
}

// checkStep checks all that must hold between a ruleset and the one compiled after it.
func checkStep(t *testing.T, have, want *compile.Ruleset, s *model.FamilySnapshot) {
	t.Helper()
	changes := batch.Diff(have, want)
	checkApplied(t, have, changes, want)
	for _, name := range changes.DeleteChains {
		// The chains that every packet passes go with the last service port that needs them.
		if !strings.Contains(name, "/") && !strings.HasPrefix(name, "remember") && name != "forward" &&
			!strings.HasPrefix(name, "answer-") {
			t.Errorf("deletes chain %s while the program runs; only those of a service port alone are worth a batch", name)
		}
	}
	for part := range changes.Transactions() { // what comes ahead decides nothing yet
		for _, c := range part.SetChains {
			if len(changes.Add) > 0 && len(part.Add)+len(part.Delete) == 0 && !part.NewChain(c.Name) {
				t.Errorf("chain %s gets its rules ahead of the elements", c.Name)
			}
		}
	}
	testaid.Equal(t, "operations from a ruleset to itself", 0, batch.Diff(want, want).Len())
	if _, err := nftsim.New(want.Table()); err != nil {
		t.Errorf("the ruleset is not sound: %v", err)
	}
	checkTable(t, have, want, s)
}

// checkTable checks what a restart finds: the table of have, with what want says then.
func checkTable(t *testing.T, have, want *compile.Ruleset, s *model.FamilySnapshot) {
	t.Helper()
	testaid.Equal(t, "operations from a table to the ruleset it was made of", 0, batch.DiffTable(tableOf(t, want), want).Len())

	// Another process knows nothing of history: it adopts the slots that it finds.
	again := want.Options.Adopt(tableOf(t, want), nil, s)
	changes := batch.DiffTable(tableOf(t, want), again)
	if changes.Len() != len(changes.DeleteChains) {
		t.Errorf("a restart with the same objects writes:\n%s", changes)
	}
	checkApplied(t, want, changes, again)

	// From the table of before to what is wanted now.
	again = want.Options.Adopt(tableOf(t, have), nil, s)
	checkApplied(t, have, batch.DiffTable(tableOf(t, have), again), again)

	// A restart with other options keeps the table.
	other := compile.Options{Counters: !want.Options.Counters, FastPath: !want.Options.FastPath}
	if want.Options.Timeouts == nil {
		other.Timeouts = nft.RetryTimeouts(nil)
	}
	again = other.Adopt(tableOf(t, have), nil, s)
	changes = batch.DiffTable(tableOf(t, have), again)
	testaid.Equal(t, "the table is deleted for other options", false, changes.DeleteTable)
	checkApplied(t, have, changes, again)

	// From nothing.
	changes = batch.DiffTable(nil, want)
	if !changes.CreateTable || changes.DeleteTable || len(changes.Delete) > 0 || len(changes.AddSets) != len(want.AllSets()) {
		t.Errorf("without a table: creates %v, deletes %v, %d deletions, %d sets",
			changes.CreateTable, changes.DeleteTable, len(changes.Delete), len(changes.AddSets))
	}
	got := elements{}.apply(t, changes)
	testaid.Equal(t, "elements from nothing", elementsOf(t, want), got)
	checkChains(t, nil, changes, want)
}

func TestDiffTurnsOneRulesetIntoTheNext(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 12 // a seed takes a third of a second
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			r := modeltest.NewRandom(modeltest.Seed(seed))
			history(t, r, configs[seed%uint64(len(configs))], 25, func(have, want *compile.Ruleset, s *model.FamilySnapshot) {
				checkStep(t, have, want, s)
			})
		})
	}
}
