package ipvs_test

import (
	"strings"
	"testing"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/legacy/iptables/iptsim"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// loaded returns tables that have taken the texts one after the other.
func loaded(t *testing.T, texts ...string) *iptsim.Tables {
	t.Helper()
	tables := iptsim.NewTables(model.IPv4)
	for _, text := range texts {
		if err := tables.Restore(text); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	return tables
}

// listed parses a listing.
func listed(t *testing.T, text string) *iptables.Saved {
	t.Helper()
	s, err := iptables.ParseSaved(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func someRules() *ipvs.Rules {
	s := modeltest.Snapshot(modeltest.Config(), modeltest.OurNode())
	return ipvs.Compile(nil, s.Family(model.IPv4), ipvs.Options{}).Rules
}

// The text has only missing jumps: --noflush would add the others again.
func TestJumpsAreWrittenOnce(t *testing.T) {
	c := someRules()
	all := loaded(t, c.String()).Save()
	testaid.Equal(t, "jumps in all of the text", len(ipvs.Jumps()), strings.Count(c.String(), "\n-I "))
	testaid.Equal(t, "jumps when none is missing", 0, strings.Count(c.Over(listed(t, all)), "\n-I "))
	one := strings.Replace(all, "-A INPUT ! -i lo -m conntrack --ctstate NEW -j VMAPD-IPVS-SERVICES\n", "", 1)
	testaid.Equal(t, "jumps when one is missing", 1, strings.Count(c.Over(listed(t, one)), "\n-I "))
}

// A listing of the rules themselves needs no repair, and any other one is repaired.
func TestTheRulesAreMended(t *testing.T) {
	c := someRules()
	good := loaded(t, c.String(), "*filter\n-A INPUT -j ACCEPT\nCOMMIT\n").Save()
	if c.Over(listed(t, good)) != "" {
		t.Errorf("this is not as it should be:\n%s", good)
	}
	jump := "-A FORWARD -m conntrack --ctstate NEW -j VMAPD-IPVS-UNALLOCATED\n"
	for name, bad := range map[string][2]string{
		"a jump is missing":            {jump, ""},
		"a jump is there twice":        {jump, jump + jump},
		"a jump of another version":    {jump, jump + "-A FORWARD -p tcp -j VMAPD-IPVS-UNALLOCATED\n"},
		"a jump from elsewhere":        {"*mangle\n", "*mangle\n-A POSTROUTING -j VMAPD-IPVS-DROP\n"},
		"a chain of another version":   {"*mangle\n", "*mangle\n:VMAPD-IPVS-OLD - [0:0]\n-A VMAPD-IPVS-OLD -j RETURN\n"},
		"a rule too many":              {"-j MASQUERADE\n", "-j MASQUERADE\n-A VMAPD-IPVS-MASQ -j RETURN\n"},
		"a rule too few":               {"-A VMAPD-IPVS-MASQ -j MASQUERADE\n", ""},
		"somebody else's before jumps": {"*mangle\n", "*mangle\n-A INPUT -j ACCEPT\n"},
	} {
		text := strings.Replace(good, bad[0], bad[1], 1)
		if text == good {
			t.Errorf("%s: nothing to replace", name)
		}
		if c.Over(listed(t, text)) == "" {
			t.Errorf("%s, and nobody noticed:\n%s", name, text)
		}
		if after := loaded(t, text, c.Over(listed(t, text))).Save(); c.Over(listed(t, after)) != "" {
			t.Errorf("%s: it is not mended:\n%s", name, after)
		}
	}
	if text := strings.Replace(good, ":VMAPD-IPVS-UNALLOCATED - [0:0]\n", "", 1); c.Over(listed(t, text)) == "" {
		t.Errorf("a chain is missing, and nobody noticed:\n%s", text)
	}
	twice := c.Over(listed(t, strings.Replace(good, jump, jump+jump, 1)))
	if want := strings.Replace(jump, "-A", "-D", 1); strings.Count(twice, want) != 1 || strings.Contains(twice, "-I FORWARD") {
		t.Errorf("what mends it is not %q, once:\n%s", want, twice)
	}
	old := c.Over(listed(t, "*mangle\n:VMAPD-IPVS-OLD - [0:0]\n-A PREROUTING -j VMAPD-IPVS-OLD\nCOMMIT\n"))
	for _, want := range []string{":VMAPD-IPVS-OLD - [0:0]\n-D PREROUTING -j VMAPD-IPVS-OLD\n", "-X VMAPD-IPVS-OLD\nCOMMIT\n"} {
		if !strings.Contains(old, want) {
			t.Errorf("no %q in what removes an old chain:\n%s", want, old)
		}
	}
}
