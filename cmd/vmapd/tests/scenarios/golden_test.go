package scenarios

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
	"github.com/vmapd/vmapd/nft/compile"
)

// A golden text is the difference between the empty cluster and a scenario, by nftables. The
// other backends have texts of their own, in legacy.
// Its format is described in testdata/scenario/README.md.

// situation is the configuration and one family's snapshot of a scenario.
type situation struct {
	conf *config.Config
	*model.FamilySnapshot
}

// familyPart is the name of an archive's part, like ip6.nft.
func familyPart(f model.Family, what string) string { return [...]string{"ip.", "ip6."}[f] + what }

// nftGolden prints the batch, which does not depend on the order of operations of the same kind. That it leads from
// one ruleset to the other is shown in package batch.
func nftGolden(before, after situation) string {
	have := before.conf.NFTables().Compile(nil, before.FamilySnapshot)
	want := after.conf.NFTables().Compile(have, after.FamilySnapshot)
	b := batch.Diff(have, want)
	rest := *b
	rest.SetChains, rest.Add = nil, nil
	rest.AddSets = sortedBy(b.AddSets, func(s nft.Set) string { return s.Name })
	var s strings.Builder
	// The name of the only table is redundant.
	s.WriteString(strings.ReplaceAll(rest.String(), " "+tableName(b.Family)+" ", " "))
	known := chainNames(choosingChains(before.FamilySnapshot, after.FamilySnapshot, b.SetChains))
	var byName []string
	for _, c := range sortedBy(b.SetChains, func(c nft.Chain) string { return c.Name }) {
		if slices.Contains(known, c.Name) {
			byName = append(byName, c.Name)
			continue
		}
		s.WriteString(chainGolden(have, b, c))
	}
	if len(byName) > 0 {
		fmt.Fprintf(&s, "add chain %s\n", strings.Join(byName, ", "))
	}
	sets, frontends := elementsGolden(b)
	for _, line := range slices.Concat(sets, frontends) {
		s.WriteString(line + "\n")
	}
	return s.String()
}

func sortedBy[T any](list []T, key func(T) string) []T {
	return slices.SortedFunc(slices.Values(list), func(a, b T) int { return strings.Compare(key(a), key(b)) })
}

func tableName(f model.Family) string { return [...]string{"ip ", "ip6 "}[f] + nft.TableName }

// choosingChain is the name of a chain that chooses an endpoint, or remembers clients, and is of no single Service.
var choosingChain = regexp.MustCompile(`^(nodeport-)?((local-)?endpoints-|local-.*-of-)[^/]*$|^remember[^/]*$`)

// choosingChains returns those chains. Where settings differ from those of before, some are others.
func choosingChains(before, after *model.FamilySnapshot, chains []nft.Chain) (list []nft.Chain) {
	same := reflect.DeepEqual(before.Pods, after.Pods)
	for _, c := range chains {
		if choosingChain.MatchString(c.Name) && (same || !strings.Contains(c.Name, "-of-")) {
			list = append(list, c)
		}
	}
	return list
}

// chainsGolden prints the chains that the golden texts of scenarios only name.
func chainsGolden(t *testing.T, all []*scenario, f model.Family) string {
	t.Helper()
	before := all[0].empty.situation(t, f)
	byName := map[string]nft.Chain{}
	for _, s := range all {
		after := s.situation(t, f)
		chains := after.conf.NFTables().Compile(nil, after.FamilySnapshot).Table().Chains
		for _, c := range choosingChains(before.FamilySnapshot, after.FamilySnapshot, chains) {
			byName[c.Name] = c
		}
	}
	var s strings.Builder
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		c := byName[name]
		fmt.Fprintf(&s, "# %s\nchain %s {\n\t%s\n}\n", c.Comment, name, strings.Join(ruleTexts(c, f), "\n\t"))
	}
	return s.String()
}

func chainNames(chains []nft.Chain) []string {
	names := make([]string, len(chains))
	for i, c := range chains {
		names[i] = c.Name
	}
	return names
}

// chainGolden prints a chain of a batch. Of a chain that exists before the batch, it prints the
// rules that differ.
func chainGolden(have *compile.Ruleset, b *batch.Batch, c nft.Chain) string {
	now := ruleTexts(c, b.Family)
	if b.NewChain(c.Name) {
		hook := ""
		if c.Hook != nft.NoHook {
			kind := map[bool]string{true: "filter", false: "nat"}[c.Filter]
			hook = fmt.Sprintf("type %s hook %v priority %d; ", kind, c.Hook, c.Prio)
		}
		return fmt.Sprintf("add chain %s { %s%s }\n", c.Name, hook, strings.Join(now, "; "))
	}
	var was []string
	for _, h := range have.Table().Chains {
		if h.Name == c.Name {
			was = ruleTexts(h, b.Family)
		}
	}
	kept := func(r string) bool { return slices.Contains(was, r) && slices.Contains(now, r) }
	if !slices.Equal(filter(was, kept), filter(now, kept)) {
		return fmt.Sprintf("flush chain %s { %s }\n", c.Name, strings.Join(now, "; "))
	}
	var s strings.Builder
	for _, r := range was {
		if !kept(r) {
			fmt.Fprintf(&s, "delete rule %s %s\n", c.Name, r)
		}
	}
	for i, r := range now {
		if kept(r) {
			continue
		}
		verb := "add"
		if slices.ContainsFunc(now[i:], kept) {
			verb = "insert"
		}
		fmt.Fprintf(&s, "%s rule %s %s\n", verb, c.Name, r)
	}
	return s.String()
}

func filter(list []string, keep func(string) bool) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return !keep(s) })
}

func ruleTexts(c nft.Chain, f model.Family) []string {
	rules := make([]string, len(c.Rules))
	for i, r := range c.Rules {
		rules[i] = r.Text(f)
	}
	return rules
}

// frontend is a frontend in a golden text.
type frontend struct {
	port, key string
	values    []string // of the elements with this key
}

// elementsGolden prints the elements that a batch adds: those of frontends in a line for each
// frontend, or for several that differ in the key alone; and those of any other set in a line.
func elementsGolden(b *batch.Batch) (sets, frontends []string) {
	var list []*frontend
	for _, rank := range []int{otherSet, dispatchSet, frontendSet, endpointSet} {
		for _, ops := range b.Add {
			switch {
			case rankOf(ops.Set) != rank:
			case rank == otherSet:
				sets = append(sets, setGolden(b.Family, ops))
			default:
				list = addValues(list, b.Family, ops)
			}
		}
	}
	list = sortedBy(list, func(f *frontend) string { return f.port + " " + f.key })
	for len(list) > 0 {
		first := *list[0]
		list = slices.DeleteFunc(list[1:], func(f *frontend) bool {
			same := f.port == first.port && slices.Equal(f.values, first.values)
			if same {
				first.key += ", " + f.key
			}
			return same
		})
		frontends = append(frontends, fmt.Sprintf("%s %s => %s", first.port, first.key, strings.Join(first.values, "; ")))
	}
	return sets, frontends
}

func setGolden(f model.Family, ops batch.Elements) string {
	set := nft.DeclarationOf(ops.Set)
	var texts []string
	for _, op := range sortedBy(ops.List, func(op nft.Element) string { return op.Key }) {
		texts = append(texts, set.Text(f, op))
	}
	return fmt.Sprintf("add element %s { %s }", ops.Set, strings.Join(texts, ", "))
}

// addValues adds the elements of a set to their frontends, and new frontends to the list.
func addValues(list []*frontend, family model.Family, ops batch.Elements) []*frontend {
	set := nft.DeclarationOf(ops.Set)
	values := map[*frontend][]string{}
	for _, op := range sortedBy(ops.List, func(op nft.Element) string { return op.Key }) {
		key, value, _ := strings.Cut(set.Text(family, op), " : ")
		key, _, _ = strings.Cut(key, " comment ")
		slot := ""
		if set.HasSlots() {
			last := strings.LastIndex(key, " . ")
			key, slot = key[:last], key[last+len(" . "):]
		}
		i := slices.IndexFunc(list, func(f *frontend) bool { return f.key == key })
		if i < 0 {
			i = len(list)
			list = append(list, &frontend{port: op.Comment, key: key})
		}
		if slot != "" && slot != strconv.Itoa(len(values[list[i]])) {
			value = "slot " + slot + " " + value // a slot below is empty
		}
		values[list[i]] = append(values[list[i]], value)
	}
	for f, v := range values {
		text := strings.Join(v, ", ")
		if rankOf(ops.Set) != dispatchSet {
			text = strings.TrimSpace(ops.Set + " " + text)
		}
		f.values = append(f.values, text)
	}
	return list
}

// The roles of sets, in the order of a line.
const (
	otherSet    = iota
	dispatchSet // service-ips and service-nodeports, where a frontend's line begins
	frontendSet // whose keys are frontends
	endpointSet // whose keys are frontends and slots; a map of one service port's slots is another set
)

func rankOf(set string) int {
	s := nft.DeclarationOf(set)
	switch {
	case set == nft.ServiceIPs, set == nft.ServiceNodePorts:
		return dispatchSet
	case len(s.Key) > 1 && slices.Contains(s.Key, nft.Slot):
		return endpointSet
	case set == nft.FirewallIPs, s.Verdicts, s.Counter:
		return frontendSet
	}
	return otherSet
}
