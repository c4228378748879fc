package others

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"

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

// What other programs write into user data, and expressions that are not known, do not hide a rule.
func TestUserDataOfOthers(t *testing.T) {
	nettest.Enter(t)
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6, nftables.TableFamilyINet} {
		table := conn.AddTable(&nftables.Table{Family: family, Name: "theirs"})
		hook, priority := nftables.ChainHookInput, nftables.ChainPriorityFilter
		chain := conn.AddChain(&nftables.Chain{Table: table, Name: "input", Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: priority})
		for _, u := range append(userData, "bell\a") {
			conn.AddRule(&nftables.Rule{Table: table, Chain: chain, UserData: []byte(u), Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}})
		}
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Socket{Key: expr.SocketKeyTransparent, Register: 1}, &expr.Cmp{Register: 1, Data: []byte{1}}, &expr.Verdict{Kind: expr.VerdictDrop},
		}})
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	r, err := ReadRuleset()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, b := range r.Bases {
		lines, err := r.Reached(b, func(Place) bool { return false })
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(lines, func(a, b Line) int { return a.Position - b.Position })
		for i, l := range lines {
			if text, err := r.Text(t.Context(), l); l.Position != i+1 || !l.Drops || !strings.Contains(text, "drop") || err != nil {
				t.Errorf("%v, rule %d, drops: %v, %q, %v", b.Place, l.Position, l.Drops, text, err)
			}
		}
		if want := len(userData) + 2; len(lines) != want {
			t.Errorf("%d rules, want %d", len(lines), want)
		}
	}
	if len(r.Bases) != 3 {
		t.Errorf("base chains: %v", r.Bases)
	}
}

// A set and an element with user data.
func TestElementsOfOthers(t *testing.T) {
	nettest.Enter(t)
	load(t, `table ip vmapd-trace-9 {
	set destinations { type ipv4_addr; comment "of somebody"; elements = { 10.0.0.1 comment "of another" }; }
}
`)
	if removed, err := RemoveStaleTraces(); err != nil || len(removed) > 0 {
		t.Errorf("removed %v, %v", removed, err)
	}
}
