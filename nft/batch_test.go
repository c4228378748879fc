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

func TestOnlyWhatDecidesNothingGoesAhead(t *testing.T) {
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
						isNew := piece.NewChain(c.Name) && (c.Hook == nft.NoHook || strings.HasPrefix(c.Name, "remember-"))
						if !isNew && !addsRules(have, c) {
							t.Errorf("chain %s goes ahead", c.Name)
						}
					}
					chains = append(chains, piece.SetChains...)
					ahead = append(ahead, piece.Add...)
				}
				equal(t, "additions, ahead and rest", opTexts(want, whole.Add), opTexts(want, append(slices.Clone(ahead), rest.Add...)))
				equal(t, "chains, ahead and rest", len(whole.SetChains), len(chains)+len(rest.SetChains))
				equal(t, "deletions", opTexts(want, whole.Delete), opTexts(want, rest.Delete))

				before := elementsOf(t, have)
				between := before.apply(t, &nft.Batch{Add: ahead})
				for _, op := range flat(ahead) {
					if !nft.DeclarationOf(op.Set).Counter {
						t.Errorf("an element of %s goes ahead", op.Set)
					}
				}
				equal(t, "elements after both", elementsOf(t, want), between.apply(t, rest))

				// In a new table no frontend chooses among endpoints yet.
				fresh := nft.DiffTable(nil, want)
				ahead = nil
				for _, piece := range fresh.Ahead(size) {
					ahead = append(ahead, piece.Add...)
				}
				for set, list := range elementsOf(t, want) {
					isAhead := strings.Contains(set, "endpoints") && set != nft.ServiceEndpoints && !strings.Contains(set, "/") ||
						strings.Contains(set, "counters")
					n := 0
					for _, op := range flat(ahead) {
						if op.Set == set {
							n++
						}
					}
					if want := len(list); isAhead && n != want || !isAhead && n != 0 {
						t.Errorf("%d of %d elements of %s go ahead", n, want, set)
					}
				}
			})
		})
	}
}

// addsRules reports whether a chain has the rules of before and others, whose sets are empty.
func addsRules(have *nft.Ruleset, c nft.Chain) bool {
	filled := map[string]bool{} // sets, by the rules' protocol, too
	for set, e := range have.Elements() {
		filled[set] = true
		for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
			if strings.Contains(text(have, set, e), p.String()+" . ") {
				filled[set+" "+p.String()] = true
			}
		}
	}
	var before []string
	for _, b := range have.Chains {
		if b.Name == c.Name {
			before = ruleTexts(have.Family, b.Rules)
		}
	}
	for _, rule := range ruleTexts(have.Family, c.Rules) {
		if len(before) > 0 && before[0] == rule {
			before = before[1:]
			continue
		}
		optional := false
		for _, set := range []string{
			nft.FirewallIPs, nft.AffinityIPs, nft.AffinityNodePorts, nft.ServiceNodePorts, nft.NodePortCounters,
			nft.SourceNAT, nft.NodePortSourceNAT, nft.Hairpin,
		} {
			which := set
			if words := strings.Fields(rule); words[1] == "l4proto" {
				which += " " + words[2]
			}
			optional = optional || !filled[which] && strings.Contains(rule+" ", "@"+set+" ")
		}
		if !optional {
			return false
		}
	}
	return len(before) == 0
}

func ruleTexts(f model.Family, rules []nft.Rule) []string {
	texts := make([]string, len(rules))
	for i, r := range rules {
		texts[i] = r.Text(f)
	}
	return texts
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

func TestABatchShowsWhatItPurges(t *testing.T) {
	service := modeltest.NewService("ns1/web").On("172.30.0.41").TCP("", 80)
	slice := modeltest.NewSlice("ns1/web-1", "web").TCP("", 8080)
	for name, change := range map[string]func(b *model.Builder){
		"another timeout": func(b *model.Builder) { service.Sticky(90).Set(b) },
		"no endpoint":     func(b *model.Builder) { slice.Delete(b) },
	} {
		t.Run(name, func(t *testing.T) {
			b := modeltest.Builder(modeltest.Config(), service.Sticky(60), slice.Ready("10.0.0.2"))
			have := nft.Compile(nil, b.Snapshot().Family(model.IPv4))
			change(b)
			lines := strings.Split(nft.Diff(have, nft.Compile(have, b.Snapshot().Family(model.IPv4))).String(), "\n")
			equal(t, "the last line", "# purge map ip vmapd affinity-ns1/web/tcp/", lines[len(lines)-2])
		})
	}
}
