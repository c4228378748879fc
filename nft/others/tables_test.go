package others

import (
	"fmt"
	"os/exec"
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
	nettest.Run(t, "table ip b {}; table ip a {}; table ip6 c {}; table inet d {}\n", "nft", "-f", "-")
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
	nettest.Run(t, `table inet theirs {
	chain elsewhere { drop; }
	chain ours { drop; }
	chain deep { notrack; }
	chain next { tcp dport 1 reject; goto deep; }
	chain input { type filter hook input priority 7; policy drop;
		ct state vmap { established : accept, invalid : drop }
		ip saddr 10.0.0.1 drop; jump next; jump ours; jump next; accept; }
}
`, "nft", "-f", "-")
	r, err := ReadRuleset()
	if err != nil {
		t.Fatal(err)
	}
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

// Rules that set a mark or keep a packet from being tracked are known as such, also those of iptables-nft.
func TestRulesThatMark(t *testing.T) {
	nettest.Enter(t)
	for _, args := range []string{
		"-t raw -A PREROUTING -j NOTRACK", "-t raw -A PREROUTING -j CT --notrack", "-t raw -A PREROUTING -j CT --zone 1",
		"-t mangle -A PREROUTING -j MARK --set-xmark 0x80/0xff", "-t mangle -A PREROUTING -j CONNMARK --set-xmark 0x80/0xff",
		"-t mangle -A PREROUTING -j CONNMARK --save-mark", "-t mangle -A PREROUTING -j CONNMARK --restore-mark", "-t mangle -A PREROUTING -j LOG",
	} {
		if out, err := exec.Command("iptables-nft", strings.Fields(args)...).CombinedOutput(); err != nil {
			nettest.Missing(t, "iptables-nft ", args, ": ", string(out))
		}
	}
	nettest.Run(t, "table inet theirs { chain early { type filter hook prerouting priority raw; notrack; meta mark set 1; ct mark set 1; counter; meta nftrace set 1;\n}\n}\n", "nft", "-f", "-")
	var got []string
	for _, at := range []Place{{"ip", "raw", "PREROUTING"}, {"ip", "mangle", "PREROUTING"}, {"inet", "theirs", "early"}} {
		lines, err := read(at)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range lines {
			got = append(got, fmt.Sprintf("%s %d untracks=%v marks=%v", at.Table, l.Position, l.Untracks, l.Marks))
		}
	}
	want := []string{
		"raw 1 untracks=true marks=false", "raw 2 untracks=true marks=false", "raw 3 untracks=false marks=false",
		"mangle 1 untracks=false marks=true", "mangle 2 untracks=false marks=true", "mangle 3 untracks=false marks=true",
		"mangle 4 untracks=false marks=true", "mangle 5 untracks=false marks=false",
		"theirs 1 untracks=true marks=false", "theirs 2 untracks=false marks=true", "theirs 3 untracks=false marks=true",
		"theirs 4 untracks=false marks=false", "theirs 5 untracks=false marks=false",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
