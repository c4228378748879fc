package nft_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
)

// The address plan of these tests is modeltest's: pods 10.0.0.0/8, ClusterIPs
// 172.30.0.0/16, nodes 192.168.0.0/24 (ours .2), load-balancer addresses
// 192.168.98.0/24, ExternalIPs 192.168.99.0/24, outside 203.0.113.0/24, and IPv6 twins.

func equal[T any](t *testing.T, what string, want, got T, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// configs are those that random tests run with, in turn.
var configs = []model.Config{
	modeltest.Config(),
	{NodeName: "node-1", NodePortAddresses: model.NodePortAddresses{All: true}, MasqueradeAll: true},
	{
		NodeName:          "node-1",
		NodePortAddresses: model.NodePortAddresses{Primary: true},
		ClusterCIDRs:      []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00:10::/64")},
	},
}

// elements are a table's, by set and key.
type elements map[string]map[string]nft.Element

func elementsOf(t *testing.T, r *nft.Ruleset) elements {
	t.Helper()
	all := elements{}
	for set, e := range r.Elements() {
		if _, ok := all[set][e.Key]; ok {
			t.Fatalf("%s has an element twice: %s", set, text(r, set, e))
		}
		if all[set] == nil {
			all[set] = map[string]nft.Element{}
		}
		all[set][e.Key] = e
	}
	return all
}

// setOp is an element to add to or delete from a set.
type setOp struct {
	Set string
	nft.ElementOp
}

func flat(lists []nft.SetOps) []setOp {
	var all []setOp
	for _, list := range lists {
		for _, op := range list.Ops {
			all = append(all, setOp{list.Set, op})
		}
	}
	return all
}

// apply does with elements what the kernel does with a batch: what is deleted must be
// there, what is added must not.
func (all elements) apply(t *testing.T, b *nft.Batch) elements {
	t.Helper()
	next := elements{}
	for set, list := range all {
		next[set] = maps.Clone(list)
	}
	for _, op := range flat(b.Delete) {
		if have, ok := next[op.Set][op.Element.Key]; !ok || have != op.Element {
			t.Fatalf("%s: deletes %q, which is not there like that", op.Set, op.Element.Key)
		}
		delete(next[op.Set], op.Element.Key)
		if len(next[op.Set]) == 0 {
			delete(next, op.Set)
		}
	}
	for _, op := range flat(b.Add) {
		if _, ok := next[op.Set][op.Element.Key]; ok {
			t.Fatalf("%s: adds %q, which is there", op.Set, op.Element.Key)
		}
		if next[op.Set] == nil {
			next[op.Set] = map[string]nft.Element{}
		}
		next[op.Set][op.Element.Key] = op.Element
	}
	return next
}

// checkApplied checks that a batch turns what have has into what want has, in elements
// and in chains.
func checkApplied(t *testing.T, have *nft.Ruleset, b *nft.Batch, want *nft.Ruleset) {
	t.Helper()
	wanted, got := elementsOf(t, want), elementsOf(t, have).apply(t, b)
	for _, set := range want.Sets {
		if !maps.Equal(wanted[set.Name], got[set.Name]) {
			t.Errorf("%s, after the batch:\n%s", set.Name, cmp.Diff(texts(want, set, wanted[set.Name]), texts(want, set, got[set.Name])))
		}
	}
	checkChains(t, have.Chains, b, want)
}

func checkChains(t *testing.T, have []nft.Chain, b *nft.Batch, want *nft.Ruleset) {
	t.Helper()
	got := map[string]string{}
	for _, c := range have {
		got[c.Name] = chainText(want.Family, c)
	}
	for _, c := range b.SetChains {
		if _, ok := got[c.Name]; ok == b.NewChain(c.Name) {
			t.Errorf("chain %s: there is %v, new is %v", c.Name, ok, b.NewChain(c.Name))
		}
		got[c.Name] = chainText(want.Family, c)
	}
	for _, name := range b.DeleteChains {
		if _, ok := got[name]; !ok {
			t.Errorf("chain %s: is deleted, but not there", name)
		}
		delete(got, name)
	}
	wanted := map[string]string{}
	for _, c := range want.Chains {
		wanted[c.Name] = chainText(want.Family, c)
	}
	equal(t, "chains after the batch", wanted, got)
}

func chainText(f model.Family, c nft.Chain) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %d", c.Hook, c.Prio)
	for _, r := range c.Rules {
		b.WriteString("\n" + r.Text(f))
	}
	return b.String()
}

func text(r *nft.Ruleset, set string, e nft.Element) string {
	for _, s := range r.Sets {
		if s.Name == set {
			return s.Text(r.Family, e)
		}
	}
	return "?"
}

func texts(r *nft.Ruleset, set nft.Set, list map[string]nft.Element) []string {
	all := []string{}
	for _, e := range list {
		all = append(all, set.Text(r.Family, e))
	}
	slices.Sort(all)
	return all
}

// tableOf is what would be read back of a ruleset.
func tableOf(t *testing.T, r *nft.Ruleset) *nft.Table {
	t.Helper()
	return &nft.Table{Family: r.Family, Sets: r.Sets, Chains: r.Chains, Elements: elementsOf(t, r)}
}

// checkSlots checks that each verdict that says how many endpoints there are to choose
// from is right about it.
func checkSlots(t *testing.T, r *nft.Ruleset) {
	t.Helper()
	all := elementsOf(t, r)
	for _, maps := range []struct{ dispatch, endpoints, chain string }{
		{nft.ServiceIPs, nft.Endpoints, "endpoints-"},
		{nft.ServiceNodePorts, nft.NodePortEndpoints, "nodeport-endpoints-"},
	} {
		slots := map[string]int{}
		for key := range all[maps.endpoints] {
			slots[key[:len(key)-4]]++
		}
		for key, e := range all[maps.dispatch] {
			if len(e.Comment) > 127 || strings.ContainsAny(e.Comment, "\"\n") {
				t.Errorf("%s: nft takes no comment %q", maps.dispatch, e.Comment)
			}
			number, forwards := strings.CutPrefix(e.Verdict.Chain, maps.chain)
			if !forwards {
				continue
			}
			n, err := strconv.Atoi(number)
			if err != nil || n < 1 {
				t.Errorf("%s: goes to %v", text(r, maps.dispatch, e), e.Verdict)
			}
			for i := range n {
				if _, ok := all[maps.endpoints][string(nft.AppendSlot([]byte(key), uint32(i)))]; !ok {
					t.Errorf("%s: slot %d is missing", text(r, maps.dispatch, e), i)
				}
			}
			if slots[key] != n {
				t.Errorf("%s: has %d slots, want %d", text(r, maps.dispatch, e), slots[key], n)
			}
			delete(slots, key)
		}
		for key, n := range slots {
			t.Errorf("%s: %d slots of %q, to which nothing leads", maps.endpoints, n, key)
		}
	}
}
