package iptables_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/legacy/iptables/iptsim"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// history compiles a ruleset after each of several random changes, and applies the batches one
// after the other to one node's tables. At each step these must equal the tables of the whole
// text.
func history(t *testing.T, r *modeltest.Random, config model.Config, o iptables.Options, steps int) {
	t.Helper()
	b := model.NewBuilder(config)
	var have rulesets
	var tables [len(model.Families)]*iptsim.Tables
	var rules [len(model.Families)]map[string]int
	for step := range steps {
		r.Steps(b, 1+r.IntN(4))
		want := compileAll(have, b.Snapshot(), o)
		for _, f := range model.Families {
			if tables[f] == nil {
				tables[f], rules[f] = load(t, want[f]), map[string]int{}
			}
			fresh := iptables.Compile(nil, b.Snapshot().Family(f), o)
			testaid.Equal(t, "the text of a ruleset that was compiled from nothing", fresh.String(), want[f].String())
			batch := iptables.Diff(have[f], want[f])
			checkApplied(t, tables[f], batch, want[f])
			testaid.Equal(t, "a batch from a ruleset to itself", iptables.Size{}, iptables.Diff(want[f], want[f]).Size())
			checkRules(t, rules[f], batch, want[f])
			if step%8 == 0 {
				checkRestart(t, tables[f], want[f])
			}
			if t.Failed() {
				t.Fatalf("step %d, %v:\n%s", step, f, batch.Text())
			}
		}
		have = want
	}
}

// checkRules adds up the growth of the number of rules, by table, and compares the sums with the
// number of rules.
func checkRules(t *testing.T, sums map[string]int, b *iptables.Batch, want *iptables.Ruleset) {
	t.Helper()
	all := map[string]int{}
	for table, r := range b.Rules() {
		sums[table] += r.Growth
	}
	for table, r := range iptables.Diff(nil, want).Rules() {
		all[table] = r.Written
	}
	testaid.Equal(t, "rules, as batches tell of them", all, sums)
}

// checkApplied applies a batch and compares the tables with what they should be.
func checkApplied(t *testing.T, tables *iptsim.Tables, b *iptables.Batch, want *iptables.Ruleset) {
	t.Helper()
	if err := tables.Restore(b.Text()); err != nil {
		t.Fatalf("the batch: %v\n%s", err, b.Text())
	}
	testaid.Equal(t, "the tables after the batch", load(t, want).Save(), tables.Save())
	if (b.Size() == iptables.Size{}) != (b.Text() == "") {
		t.Errorf("a batch has %+v; its text is %q", b.Size(), b.Text())
	}
}

// checkRestart checks that a process that knows nothing of the past brings the tables in
// line, and that another removes everything.
func checkRestart(t *testing.T, tables *iptsim.Tables, want *iptables.Ruleset) {
	t.Helper()
	stale := tables.Clone()
	if err := stale.Restore("*nat\n:VMAPD-C-OLD - [0:0]\n:VMAPD-IP-0 - [0:0]\n:OTHER - [0:0]\n" +
		"-A VMAPD-IP-0 -g VMAPD-C-OLD\n-A OTHER -j ACCEPT\nCOMMIT\n*filter\n:VMAPD-OLD - [0:0]\n-A VMAPD-OLD -j DROP\nCOMMIT\n"); err != nil {
		t.Fatal(err)
	}
	if err := stale.Restore(want.Repair(saved(t, stale)).Text()); err != nil {
		t.Fatal(err)
	}
	withOther := load(t, want)
	if err := withOther.Restore("*nat\n:OTHER - [0:0]\n-A OTHER -j ACCEPT\nCOMMIT\n"); err != nil {
		t.Fatal(err)
	}
	testaid.Equal(t, "the tables after a restart", withOther.Save(), stale.Save())

	bare := load(t, want)
	if err := bare.Restore(saved(t, bare).RemoveText(iptables.IsOurs)); err != nil {
		t.Fatal(err)
	}
	testaid.Equal(t, "what is left after removal", iptsim.NewTables(want.Family).Save(), bare.Save())
}

// saved returns the listing of iptables-save.
func saved(t *testing.T, tables *iptsim.Tables) *iptables.Saved {
	t.Helper()
	s, err := iptables.ParseSaved(strings.NewReader(tables.Save()))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestBatchesLeadToTheWholeText(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			r := modeltest.NewRandom(modeltest.Seed(seed))
			history(t, r, configs[seed%uint64(len(configs))], options[seed%uint64(len(options))], 25)
		})
	}
}

func TestOtherOptionsRewriteWhatTheyConcern(t *testing.T) {
	for seed := range uint64(5) {
		r := modeltest.NewRandom(modeltest.Seed(seed))
		b := model.NewBuilder(configs[seed%uint64(len(configs))])
		r.Steps(b, 60)
		have := compileAll(rulesets{}, b.Snapshot(), options[0])
		r.Steps(b, 3)
		want := compileAll(have, b.Snapshot(), options[1])
		for _, f := range model.Families {
			fresh := iptables.Compile(nil, b.Snapshot().Family(f), options[1])
			checkApplied(t, load(t, have[f]), iptables.Diff(have[f], want[f]), fresh)
		}
	}
}
