package host_test

import (
	"errors"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/model/nettest"
)

// nftTables has all names that iptables-nft may have used.
func nftTables(model.Family) ([]string, error) { return []string{"nat", "filter"}, nil }

func remover() *host.Finder { return &host.Finder{Remover: host.Remover{NFTTables: nftTables}} }

// feed runs iptables-restore of a variant with rules.
func feed(t testing.TB, program, rules string) {
	t.Helper()
	cmd := exec.Command(program+"-restore", "-c")
	cmd.Stdin = strings.NewReader(rules + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
}

// listed is a table as the program lists it, with counters.
func listed(t *testing.T, program, table string) string {
	t.Helper()
	var kept []string
	for line := range strings.Lines(output(t, program+"-save", "-c", "-t", table)) {
		if !strings.HasPrefix(line, "#") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
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
			feed(t, program, between)
			before := listed(t, program, "nat")
			if err := remover().RemoveRules(); err != nil {
				t.Fatal(err)
			}
			var want []string
			for line := range strings.Lines(before) {
				if !strings.Contains(line, "KUBE-") {
					want = append(want, line)
				}
			}
			expected, got := strings.Join(want, ""), listed(t, program, "nat")
			if strings.HasSuffix(program, "-legacy") { // it counts anew for policies, whatever is restored
				expected, got = policies.ReplaceAllString(expected, "$1"), policies.ReplaceAllString(got, "$1")
			}
			if diff := cmp.Diff(expected, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			// The kernel's chains are those that the listing has.
			output(t, program, "-t", "nat", "-I", "AAA", "-j", "MMM")
			output(t, program, "-t", "nat", "-F")
			output(t, program, "-t", "nat", "-X")
		})
	}
}

// A chain that somebody else's map leads to can't be deleted. Then nothing is, and it is told.
func TestARemovalIsAllOrNothing(t *testing.T) {
	nettest.Enter(t)
	feed(t, "iptables-nft", "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-X - [0:0]\n-A OUTPUT -j KUBE-SERVICES\n-A KUBE-SERVICES -j KUBE-SVC-X\nCOMMIT")
	output(t, "nft", "add map ip nat theirs { type inet_service : verdict; elements = { 80 : jump KUBE-SVC-X }; }")
	before := output(t, "nft", "list", "table", "ip", "nat")
	err := remover().RemoveRules()
	if err == nil || !strings.Contains(err.Error(), "IPv4 chains of iptables-nft") {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff(before, output(t, "nft", "list", "table", "ip", "nat")); diff != "" {
		t.Errorf("something changed (-before +after):\n%s", diff)
	}
	finder := remover()
	found, err := finder.Find()
	if want := (map[host.Leftover]int{{Owner: host.OwnerKubeProxy, Kind: host.KindNFTChain}: 2}); err != nil || !cmp.Equal(want, found) {
		t.Errorf("left: %v, %v; want %v", found, err, want)
	}
	output(t, "nft", "delete map ip nat theirs")
	if err := remover().RemoveRules(); err != nil {
		t.Error(err)
	}
	if got := listed(t, "iptables-nft", "nat"); strings.Contains(got, "KUBE") {
		t.Errorf("left:\n%s", got)
	}
}

// What would be lost in a table that its program can't list is told, once.
func TestATableWithRulesOfNFTIsAnError(t *testing.T) {
	nettest.Enter(t)
	feed(t, "iptables-nft", "*nat\n:KUBE-SERVICES - [0:0]\n-A OUTPUT -j KUBE-SERVICES\nCOMMIT")
	output(t, "nft", "add rule ip nat OUTPUT meta skuid 1 dnat to numgen random mod 2 map { 0 : 10.0.0.1, 1 : 10.0.0.2 }")
	err := errors.Join(remover().RemoveRules(), host.RemoveIPVS(ipvs.Options{}))
	if err == nil || strings.Count(err.Error(), "rules of nft") != 1 {
		t.Errorf("got %v", err)
	}
}

// Where there are tables, and no program, an error or the function Missing says so. Where there are none, no program
// is needed.
func TestWithoutProgramsNothingIsRemoved(t *testing.T) {
	nettest.Enter(t)
	t.Setenv("PATH", "")
	missing := 0
	for _, tt := range []struct {
		tables  []string
		missing func(error)
		want    bool
	}{
		{tables: []string{"vmapd"}},
		{tables: []string{"nat"}, want: true},
		{tables: []string{"nat"}, missing: func(error) { missing++ }},
	} {
		r := &host.Finder{Remover: host.Remover{
			NFTTables: func(model.Family) ([]string, error) { return tt.tables, nil }, Missing: tt.missing,
		}}
		if err := r.RemoveRules(); host.LacksProgram(err) != tt.want || (err != nil) != tt.want {
			t.Errorf("tables %v: got %v, want an error: %v", tt.tables, err, tt.want)
		}
	}
	if families := 2; missing != families {
		t.Errorf("%d are missing, want one of each family", missing)
	}
}

// A look costs the same with many chains; they are listed when they have come.
func TestALookNoticesThatKubeProxyIsBack(t *testing.T) {
	for _, program := range []string{"iptables-nft", "ip6tables-legacy"} {
		t.Run(program, func(t *testing.T) {
			nettest.Enter(t)
			finder := remover()
			look := func() int {
				found, err := finder.Look()
				if err != nil {
					t.Fatal(err)
				}
				return found[host.Leftover{Owner: host.OwnerKubeProxy, Kind: host.KindNFTChain}] +
					found[host.Leftover{Owner: host.OwnerKubeProxy, Kind: host.KindLegacyChain}]
			}
			if n := look(); n != 0 {
				t.Errorf("%d chains before there are any", n)
			}
			feed(t, program, "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-X - [0:0]\n-A OUTPUT -j KUBE-SERVICES\nCOMMIT")
			for range 2 {
				if n := look(); n != 2 {
					t.Errorf("%d chains, want 2", n)
				}
			}
			if err := remover().RemoveRules(); err != nil {
				t.Fatal(err)
			}
			if n := look(); n != 0 {
				t.Errorf("%d chains are left", n)
			}
		})
	}
}
