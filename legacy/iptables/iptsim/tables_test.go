package iptsim_test

import (
	"strings"
	"testing"

	"github.com/vmapd/vmapd/legacy/iptables/iptsim"
	"github.com/vmapd/vmapd/model"
)

// table returns the text of a table.
func table(name string, lines ...string) string {
	return "*" + name + "\n" + strings.Join(lines, "\n") + "\nCOMMIT\n"
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
