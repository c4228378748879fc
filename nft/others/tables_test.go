package others

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/nettest"
)

func TestTableNames(t *testing.T) {
	nettest.Enter(t)
	load(t, "table ip b {}; table ip a {}; table ip6 c {}; table inet d {}\n")
	for f, want := range map[model.Family][]string{model.IPv4: {"a", "b"}, model.IPv6: {"c"}} {
		got, err := TableNames(f)
		if slices.Sort(got); !slices.Equal(got, want) || err != nil {
			t.Errorf("%v: want %q; got %q, %v", f, want, got, err)
		}
	}
}

// The rules of a base chain and of those to which it leads: also by goto, and once each.
func TestReached(t *testing.T) {
	nettest.Enter(t)
	load(t, `table inet theirs {
	chain elsewhere { drop; }
	chain ours { drop; }
	chain deep { notrack; }
	chain next { tcp dport 1 reject; goto deep; }
	chain input { type filter hook input priority 7; policy drop;
		ct state vmap { established : accept, invalid : drop }
		ip saddr 10.0.0.1 drop; jump next; jump ours; jump next; accept; }
}
`)
	r, err := ReadRuleset()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	place := Place{Family: "inet", Table: "theirs", Chain: "input"}
	if want := []Base{{Place: place, Hook: Input, Priority: 7, Drops: true}}; !slices.Equal(r.Bases, want) {
		t.Fatalf("base chains: want %v, got %v", want, r.Bases)
	}
	lines, err := r.Reached(r.Bases[0], func(p Place) bool { return p.Chain == "ours" })
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range lines {
		if l.Drops || l.Rejects || l.Untracks {
			got = append(got, fmt.Sprintf("%s %d: drops=%v rejects=%v untracks=%v", l.Place.Chain, l.Position, l.Drops, l.Rejects, l.Untracks))
		}
	}
	slices.Sort(got)
	want := []string{
		"deep 1: drops=false rejects=false untracks=true",
		"input 1: drops=true rejects=false untracks=false",
		"input 2: drops=true rejects=false untracks=false",
		"next 1: drops=false rejects=true untracks=false",
	}
	if diff := cmp.Diff(want, got); diff != "" || len(lines) != 9 {
		t.Errorf("%d rules, want 9; (-want +got):\n%s", len(lines), diff)
	}
}
