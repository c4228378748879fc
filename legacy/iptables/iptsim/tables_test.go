package iptsim_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/legacy/iptables/iptsim"
	"github.com/vmapd/vmapd/model"
)

// table returns the text of a table.
func table(name string, lines ...string) string {
	return "*" + name + "\n" + strings.Join(lines, "\n") + "\nCOMMIT\n"
}

func TestRestoreIsStrict(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, tt := range []struct{ name, text, want string }{
		{"no table", "-A OUTPUT -j ACCEPT\n", "no table is open"},
		{"an unknown table", table("raw"), "unknown table"},
		{"no COMMIT", "*nat\n", "no COMMIT"},
		{"two tables, one COMMIT", "*nat\n*filter\nCOMMIT\n", "no COMMIT"},
		{"an unknown command", table("nat", "-N X"), "no chain X"},
		{"another unknown command", table("nat", "-F OUTPUT"), "unknown command"},
		{"a rule for no chain", table("nat", "-A X -j ACCEPT"), "no chain X"},
		{"a name of 29 characters", table("nat", ":"+strings.Repeat("X", 29)+" - [0:0]"), "chain"},
		{"a policy for a chain of ours", table("nat", ":X ACCEPT [0:0]"), "policy"},
		{"no policy for a built-in chain", table("nat", ":OUTPUT - [0:0]"), "policy"},
		{"a jump to no chain", table("nat", ":X - [0:0]", "-A X -j Y"), "no such chain"},
		{"a goto to a built-in chain", table("nat", ":X - [0:0]", "-A X -g OUTPUT"), "no such chain"},
		{"a chain in use deleted", table("nat", ":X - [0:0]", ":Y - [0:0]", "-A X -j Y", "-X Y"), "no such chain"},
		{"a chain with rules deleted", table("nat", ":X - [0:0]", "-A X -j ACCEPT", "-X X"), "can't be deleted"},
		{"a built-in chain deleted", table("nat", "-X OUTPUT"), "can't be deleted"},
		{"a place behind the end", table("nat", "-I OUTPUT 2 -j ACCEPT"), "no place"},
		{"an open quote", table("nat", `-A OUTPUT -m comment --comment "x -j ACCEPT`), "quote"},
		{"an unknown option", table("nat", "-A OUTPUT --ports 1 -j ACCEPT"), "unknown option"},
		{"an option without its match", table("nat", "-A OUTPUT --comment x -j ACCEPT"), "unknown option"},
		{"an unknown match", table("nat", "-A OUTPUT -m physdev -j ACCEPT"), "unknown match"},
		{"a port without protocol", table("nat", "-A OUTPUT -m tcp --dport 80 -j ACCEPT"), "needs -p"},
		{"a port of another protocol", table("nat", "-A OUTPUT -p udp -m tcp --dport 80 -j ACCEPT"), "needs -p"},
		{"no port", table("nat", "-A OUTPUT -p tcp -m tcp --dport 65536 -j ACCEPT"), "no ports"},
		{"ports backwards", table("nat", "-A OUTPUT -p tcp -m tcp --dport 2:1 -j ACCEPT"), "no ports"},
		{"an unknown protocol", table("nat", "-A OUTPUT -p gre -j ACCEPT"), "unknown protocol"},
		{"an address of the other family", table("nat", "-A OUTPUT -d ::1 -j ACCEPT"), "no IPv4 address"},
		{"bits outside the mask", table("nat", "-A OUTPUT -d 10.0.0.1/8 -j ACCEPT"), "outside"},
		{"a mask too long", table("nat", "-A OUTPUT -d 10.0.0.1/33 -j ACCEPT"), "no mask"},
		{"an interface too long", table("nat", "-A OUTPUT -i abcdefghijklmnop -j ACCEPT"), "no interface"},
		{"a comment too long", table("nat", "-A OUTPUT -m comment --comment "+long+" -j ACCEPT"), "too long"},
		{"a list's name too long", table("nat", "-A OUTPUT -m recent --set --name "+long+" --rsource -j ACCEPT"), "no name"},
		{"recent without seconds", table("nat", "-A OUTPUT -m recent --update --name X --rsource -j ACCEPT"), "in place of --seconds"},
		{"recent, set with seconds", table("nat", "-A OUTPUT -m recent --set --seconds 1 --name X --rsource -j ACCEPT"), "in place of --name"},
		{"a probability of one", table("nat", "-A OUTPUT -m statistic --mode random --probability 1 -j ACCEPT"), "no probability"},
		{"another mode", table("nat", "-A OUTPUT -m statistic --mode nth --probability 0.5 -j ACCEPT"), "in place of random"},
		{"a negation that there is not", table("nat", "-A OUTPUT ! -p tcp -j ACCEPT"), "negated"},
		{"no target", table("nat", "-A OUTPUT -p tcp"), "no target"},
		{"something behind the target", table("nat", "-A OUTPUT -j ACCEPT -p tcp"), "unknown options"},
		{"something missing at the end", table("nat", "-A OUTPUT -p tcp -j"), "no target"},
		{"a drop in nat", table("nat", "-A OUTPUT -j DROP"), "DROP"},
		{"a reject in nat", table("nat", "-A OUTPUT -j REJECT --reject-with icmp-port-unreachable"), "REJECT"},
		{"DNAT in filter", table("filter", "-A OUTPUT -p tcp -j DNAT --to-destination 10.0.0.1:80"), "DNAT"},
		{"DNAT with a port, for all protocols", table("nat", "-A OUTPUT -j DNAT --to-destination 10.0.0.1:80"), "DNAT"},
		{"DNAT without a port", table("nat", "-A OUTPUT -p tcp -j DNAT --to-destination 10.0.0.1"), "port"},
		{"DNAT with another option", table("nat", "-A OUTPUT -p tcp -j DNAT --persistent x"), "in place of --to-destination"},
		{"a reset for UDP", table("filter", "-A OUTPUT -p udp -j REJECT --reject-with tcp-reset"), "REJECT"},
		{"a reject of the other family", table("filter", "-A OUTPUT -j REJECT --reject-with icmp6-port-unreachable"), "REJECT"},
		{"a chain declared twice", table("nat", ":X - [0:0]", ":X - [0:0]"), "twice"},
		{"a rule deleted that is not there", table("nat", "-D OUTPUT -j RETURN"), "no such rule"},
		{"a number without a rule", table("nat", "-D OUTPUT 1"), "no such rule"},
		{"a set without its match", table("nat", "-A OUTPUT --match-set X dst -j RETURN"), "unknown option"},
		{"a set without fields", table("nat", "-A OUTPUT -m set --match-set X"), "no target"},
		{"a set that is changed", table("mangle", "-A OUTPUT -j SET --add-set X dst"), "unknown options"},
		{"an unknown type of address", table("nat", "-A OUTPUT -m addrtype --dst-type BROADCAST -j RETURN"), "unknown type"},
		{"masquerading in filter", table("filter", "-A OUTPUT -j MASQUERADE"), "MASQUERADE"},
		{"masquerading with another option", table("nat", "-A POSTROUTING -j MASQUERADE --random"), "unknown options"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tables := iptsim.NewTables(model.IPv4)
			if err := tables.Restore(table("nat", ":KEPT - [0:0]")); err != nil {
				t.Fatal(err)
			}
			before := tables.Save()
			err := tables.Restore(tt.text)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want one with %q", err, tt.want)
			}
			if diff := cmp.Diff(before, tables.Save()); diff != "" {
				t.Errorf("what is there after the error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDeclaringAChainEmptiesIt(t *testing.T) {
	tables := iptsim.NewTables(model.IPv4)
	for _, text := range []string{
		table("nat", ":X - [0:0]", ":Y - [0:0]", "-A X -j Y", "-I OUTPUT 1 -j X", "-I OUTPUT 1 -j Y"),
		table("nat", ":X - [0:0]", ":Y - [0:0]", "-A X -j RETURN"),
	} {
		if err := tables.Restore("# a comment\n\n" + text); err != nil {
			t.Fatal(err)
		}
	}
	want := ":X - [0:0]\n:Y - [0:0]\n-A OUTPUT -j Y\n-A OUTPUT -j X\n-A X -j RETURN\nCOMMIT\n"
	if got := tables.Save(); !strings.HasSuffix(got, want) {
		t.Errorf("want at the end\n%s, got\n%s", want, got)
	}
}

func TestRulesAreDeleted(t *testing.T) {
	tables := iptsim.NewTables(model.IPv4)
	for _, text := range []string{
		table("nat", "-A OUTPUT -j RETURN", "-A OUTPUT -p tcp -j ACCEPT", "-A OUTPUT -p udp -j ACCEPT"),
		table("nat", "-D OUTPUT -p udp -j ACCEPT", "-D OUTPUT 1"),
	} {
		if err := tables.Restore(text); err != nil {
			t.Fatal(err)
		}
	}
	want := "[0:0]\n-A OUTPUT -p tcp -j ACCEPT\nCOMMIT\n"
	if got := tables.Save(); !strings.HasSuffix(got, want) {
		t.Errorf("want at the end\n%s, got\n%s", want, got)
	}
}

func FuzzRestore(f *testing.F) {
	f.Add(table("nat", ":X - [0:0]", `-A X -d 0.0.0.5/0.0.0.15 -p tcp -m tcp --dport 1:2 -m comment --comment "a \" b" -g X`))
	f.Add(table("filter", ":X - [0:0]", "-A X -m recent --set --name n --rsource -m statistic --mode random --probability 0.5 -j DROP"))
	f.Fuzz(func(t *testing.T, text string) {
		tables := iptsim.NewTables(model.IPv4)
		if tables.Restore(text) != nil {
			return
		}
		before := tables.Save()
		if err := tables.Restore(""); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, tables.Save()); diff != "" {
			t.Errorf("restoring nothing changes something:\n%s", diff)
		}
	})
}
