package compile_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/compile"
)

// The address plan of these tests is modeltest's.

// elementsOf are the elements of a ruleset, by set and key.
func elementsOf(r *compile.Ruleset) map[string]map[string]nft.Element {
	all := map[string]map[string]nft.Element{}
	for unit := range r.Units() {
		unit.Elements(func(set string, e nft.Element) {
			if all[set] == nil {
				all[set] = map[string]nft.Element{}
			}
			all[set][e.Key] = e
		})
	}
	return all
}

// leads says from how many slots of each map a verdict's chain chooses: N and n.
var leads = regexp.MustCompile(strings.ReplaceAll(`^(?:nodeport-)?(?:endpoints-(?<all>COUNT)|local-endpoints-(?<local>COUNT)|local-(?<n>COUNT)-of-(?<N>COUNT))(?:-(?:maglev|maglev-port))?(?:-(?:dns|no-retry))?$`, "COUNT", `\d+(?:-to-\d+)?`))

// slots are from how many to how many there must be.
type slots struct{ least, most int }

func slotsOf(t *testing.T, chain string) (all, local slots) {
	t.Helper()
	m := leads.FindStringSubmatch(chain)
	for i, name := range leads.SubexpNames() {
		if name == "" || m == nil || m[i] == "" {
			continue
		}
		low, high, isRange := strings.Cut(m[i], "-to-")
		if !isRange {
			high = low
		}
		least, err := strconv.Atoi(low)
		most, err2 := strconv.Atoi(high)
		switch {
		case err != nil || err2 != nil || least > most:
			t.Errorf("chain %s chooses from %q", chain, m[i])
		case name == "all", name == "N":
			all = slots{least, most}
		default:
			local = slots{least, most}
		}
	}
	return all, local
}

// checkSlots checks that each verdict that says how many endpoints there are to choose
// from is right about it.
func checkSlots(t *testing.T, r *compile.Ruleset) {
	t.Helper()
	all := elementsOf(r)
	count := func(set string) map[string]int {
		slots := map[string]int{}
		for key := range all[set] {
			slots[key[:len(key)-4]]++
		}
		return slots
	}
	for _, maps := range []struct{ dispatch, endpoints, local string }{
		{nft.ServiceIPs, nft.Endpoints, nft.LocalEndpoints},
		{nft.ServiceNodePorts, nft.NodePortEndpoints, nft.NodePortLocalEndpoints},
	} {
		slots, local := count(maps.endpoints), count(maps.local)
		for key, e := range all[maps.dispatch] {
			if len(e.Comment) > 127 || strings.ContainsAny(e.Comment, "\"\n") {
				t.Errorf("%s: nft takes no comment %q", maps.dispatch, e.Comment)
			}
			wantAll, wantLocal := slotsOf(t, e.Verdict.Chain)
			checkDense(t, all[maps.endpoints], maps.endpoints, key, slots[key], wantAll)
			checkDense(t, all[maps.local], maps.local, key, local[key], wantLocal)
			delete(slots, key)
			delete(local, key)
		}
		for set, left := range map[string]map[string]int{maps.endpoints: slots, maps.local: local} {
			for key, n := range left {
				t.Errorf("%s: %d slots of %q, to which nothing leads", set, n, key)
			}
		}
	}
}

func checkDense(t *testing.T, elements map[string]nft.Element, set, key string, have int, want slots) {
	t.Helper()
	for i := range have {
		if _, ok := elements[string(nft.AppendSlot([]byte(key), uint32(i)))]; !ok {
			t.Errorf("%s: slot %d of %q is missing", set, i, key)
		}
	}
	if have < want.least || have > want.most {
		t.Errorf("%s: %q has %d slots, want %d to %d", set, key, have, want.least, want.most)
	}
}
