package leftovers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/model/nettest"
)

func TestMain(m *testing.M) { nettest.Main(m) }

func find(t testing.TB) Found {
	t.Helper()
	found, err := NewFinder(ipvs.Options{}).All()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// numberOf returns the number of objects of some kinds.
func numberOf(found Found, kinds ...string) (n int) {
	for _, l := range found {
		if slices.Contains(kinds, l.Kind) {
			n += l.Number
		}
	}
	return n
}

// policies matches those of built-in chains, with their counters.
var policies = regexp.MustCompile(`(?m)^(:\S+ \S+) \[\d+:\d+\]$`)

// Rules of others stay as they were, with their counters and in their order, wherever
// kube-proxy's stand between them: before and after the first and the last of a chain, and where
// others jump and go to chains of others that lie behind kube-proxy's.
func TestRemovalKeepsOthersRulesAndTheirCounters(t *testing.T) {
	between := testaid.Read(t, "testdata/between.rules")
	for _, program := range []string{"iptables-nft", "iptables-legacy", "ip6tables-nft", "ip6tables-legacy"} {
		t.Run(program, func(t *testing.T) {
			nettest.Enter(t)
			nettest.Run(t, between+"\n", program+"-restore", "-c")
			before := nettest.Listed(t, program, "nat")
			if err := find(t).Remove(); err != nil {
				t.Fatal(err)
			}
			var want []string
			for line := range strings.Lines(before) {
				if !strings.Contains(line, "KUBE-") {
					want = append(want, line)
				}
			}
			expected, got := strings.Join(want, ""), nettest.Listed(t, program, "nat")
			if strings.HasSuffix(program, "-legacy") { // it counts anew for policies, whatever is restored
				expected, got = policies.ReplaceAllString(expected, "$1"), policies.ReplaceAllString(got, "$1")
			}
			if diff := cmp.Diff(expected, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			// The kernel's chains are those that the listing has.
			nettest.Run(t, "", program, "-t", "nat", "-I", "AAA", "-j", "MMM")
			nettest.Run(t, "", program, "-t", "nat", "-F")
			nettest.Run(t, "", program, "-t", "nat", "-X")
		})
	}
}

// A chain to which a map of another program leads can't be deleted. It stays, empty, and the error names it; what was
// left of it is removed once the map is gone.
func TestAChainThatAMapLeadsTo(t *testing.T) {
	nettest.Enter(t)
	nettest.Run(t, "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-X - [0:0]\n-A OUTPUT -j KUBE-SERVICES\n-A KUBE-SERVICES -j KUBE-SVC-X\n"+
		"-A KUBE-SVC-X -j ACCEPT\nCOMMIT\n", "iptables-nft-restore", "-c")
	nettest.Run(t, "", "nft", "add map ip nat theirs { type inet_service : verdict; elements = { 80 : jump KUBE-SVC-X }; }")
	err := find(t).Remove()
	if err == nil || !strings.Contains(err.Error(), "IPv4 chains of iptables-nft: table nat: a map of another program leads to chain KUBE-SVC-X") {
		t.Errorf("got %v", err)
	}
	if got := nettest.Run(t, "", "nft", "list", "table", "ip", "nat"); strings.Contains(got, "KUBE-SERVICES") || strings.Contains(got, "accept\n") {
		t.Errorf("left:\n%s", got)
	}
	if got, want := find(t).String(), "of kube-proxy: 1 × iptables-nft chain"; got != want {
		t.Errorf("left: %s; want %s", got, want)
	}
	nettest.Run(t, "", "nft", "delete map ip nat theirs")
	if err := find(t).Remove(); err != nil {
		t.Error(err)
	}
	if got := nettest.Listed(t, "iptables-nft", "nat"); strings.Contains(got, "KUBE") {
		t.Errorf("left:\n%s", got)
	}
}

// One rule of nft's own in a table, with something that iptables-nft does not know, makes the program refuse the family.
// kube-proxy's rules go all the same, from all tables, also those to which such a rule leads; the others stay. No
// program is needed.
func TestTablesThatIPTablesCannotList(t *testing.T) {
	natives := map[string]string{
		"map": "add rule FAMILY TABLE CHAIN meta mark set numgen random mod 2 map { 0 : 1, 1 : 2 }",
		"set": "add rule FAMILY TABLE CHAIN tcp dport { 80, 443 } counter", "named set": "add set FAMILY TABLE theirs { type inet_service; }\n" +
			"add rule FAMILY TABLE CHAIN tcp dport @theirs counter",
		"counter object": "add counter FAMILY TABLE theirs\nadd rule FAMILY TABLE CHAIN counter name theirs",
		"jump":           "add counter FAMILY TABLE theirs\nadd rule FAMILY TABLE CHAIN counter name theirs tcp dport { 80, 443 } jump KUBE-MARK-MASQ",
	}
	chains := map[string]string{"nat": "POSTROUTING", "filter": "FORWARD", "mangle": "PREROUTING", "raw": "OUTPUT"}
	for _, family := range []string{"ip", "ip6"} {
		for table, chain := range chains {
			for name, native := range natives {
				t.Run(family+" "+table+" "+name, func(t *testing.T) {
					nettest.Enter(t)
					program := map[string]string{"ip": "iptables-nft", "ip6": "ip6tables-nft"}[family]
					var rules strings.Builder
					for table, chain := range chains {
						fmt.Fprintf(&rules, "*%s\n:KUBE-SERVICES - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n:KUBE-POSTROUTING - [0:0]\n:THEIRS - [0:0]\n"+
							"-A %s -j KUBE-POSTROUTING\n-A %[2]s -j THEIRS\n-A %[2]s -g KUBE-SERVICES\n"+
							"-A KUBE-SERVICES -j KUBE-MARK-MASQ\n-A KUBE-MARK-MASQ -j RETURN\nCOMMIT\n", table, chain)
					}
					nettest.Run(t, rules.String()+"\n", program+"-restore", "-c")
					load := strings.NewReplacer("FAMILY", family, "TABLE", table, "CHAIN", chain).Replace(native) + "\n"
					nettest.Run(t, load, "nft", "-f", "-")
					path := os.Getenv("PATH")
					t.Setenv("PATH", "")
					if n := numberOf(find(t), "iptables-nft chain"); n != 3*len(chains) {
						t.Errorf("%d chains", n)
					}
					if err := Remove(ipvs.Options{}); err != nil {
						t.Errorf("cleanup: %v", err)
					}
					t.Setenv("PATH", path)
					got := nettest.Run(t, "", "nft", "list", "ruleset")
					if strings.Contains(got, "KUBE-") || strings.Count(got, "jump THEIRS") != len(chains) {
						t.Errorf("left:\n%s", got)
					}
					if name != "jump" && !strings.Contains(name, "map") && !strings.Contains(got, "counter") {
						t.Errorf("the rule of another program is gone:\n%s", got)
					}
				})
			}
		}
	}
}

// Without the programs of iptables-legacy, what is in its tables is unknown, and not nothing.
func TestWithoutProgramsOfLegacy(t *testing.T) {
	nettest.Enter(t)
	nettest.Run(t, "*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n", "iptables-legacy-restore", "-c")
	t.Setenv("PATH", "")
	found, err := NewFinder(ipvs.Options{}).All()
	if !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "chains of iptables-legacy") || found.String() != "" {
		t.Errorf("found %v, %v", found, err)
	}
	if err := Remove(ipvs.Options{}); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("cleanup: %v", err)
	}
}

// Chains that come back are noticed.
func TestALookNoticesThatKubeProxyIsBack(t *testing.T) {
	for _, program := range []string{"iptables-nft", "ip6tables-legacy"} {
		t.Run(program, func(t *testing.T) {
			nettest.Enter(t)
			look := func() int { return numberOf(find(t), "iptables-nft chain", "iptables-legacy chain") }
			if n := look(); n != 0 {
				t.Errorf("%d chains before there are any", n)
			}
			nettest.Run(t, "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-X - [0:0]\n-A OUTPUT -j KUBE-SERVICES\nCOMMIT\n", program+"-restore", "-c")
			for range 2 {
				if n := look(); n == 0 {
					t.Error("no chains")
				}
			}
			if err := find(t).Remove(); err != nil {
				t.Fatal(err)
			}
			if n := look(); n != 0 {
				t.Errorf("%d chains are left", n)
			}
		})
	}
}
