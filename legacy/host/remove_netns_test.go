package host_test

import (
	"os/exec"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/nft/others"
)

var remover = host.Remover{NFTChains: others.IPTablesChains, RemoveNFTChains: others.RemoveIPTablesChains}

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

// Rules of others stay as they were, with their counters and in their order, wherever
// kube-proxy's stand between them: before and after the first and the last of a chain, and where
// others jump and go to chains of others that lie behind kube-proxy's.
func TestRemovalKeepsOthersRulesAndTheirCounters(t *testing.T) {
	const between = `*nat
:PREROUTING ACCEPT [7:700]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [1:100]
:POSTROUTING ACCEPT [2:200]
:AAA - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-X - [0:0]
:MMM - [0:0]
:KUBE-NODEPORTS - [0:0]
:ZZZ - [0:0]
[1:11] -A PREROUTING -j KUBE-SERVICES
[2:22] -A PREROUTING -p tcp -m comment --comment "nothing but counting"
[3:33] -A PREROUTING -p udp -j ZZZ
[3:34] -A PREROUTING -p sctp -g MMM
[3:35] -A PREROUTING -g KUBE-NODEPORTS
[0:0] -A INPUT -j KUBE-SERVICES
[4:44] -A POSTROUTING -j AAA
[5:55] -A AAA -p tcp -m multiport --dports 1,2,3 -j RETURN
[6:66] -A AAA -j KUBE-SVC-X
[0:0] -A KUBE-SERVICES -j KUBE-SVC-X
[0:0] -A KUBE-SERVICES -j ZZZ
[0:0] -A KUBE-SVC-X -j RETURN
[7:77] -A MMM -j ZZZ
[8:88] -A MMM -p tcp -j ACCEPT
[9:99] -A ZZZ -j RETURN
COMMIT
`
	for _, program := range []string{"iptables-nft", "iptables-legacy", "ip6tables-nft", "ip6tables-legacy"} {
		t.Run(program, func(t *testing.T) {
			enterNamespace(t)
			feed(t, program, between)
			before := listed(t, program, "nat")
			if err := remover.RemoveRules(nil); err != nil {
				t.Fatal(err)
			}
			var want []string
			for line := range strings.Lines(before) {
				if !strings.Contains(line, "KUBE-") {
					want = append(want, line)
				}
			}
			if diff := cmp.Diff(strings.Join(want, ""), listed(t, program, "nat")); diff != "" {
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
	enterNamespace(t)
	feed(t, "iptables-nft", "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-X - [0:0]\n-A OUTPUT -j KUBE-SERVICES\n-A KUBE-SERVICES -j KUBE-SVC-X\nCOMMIT")
	output(t, "nft", "add map ip nat theirs { type inet_service : verdict; elements = { 80 : jump KUBE-SVC-X }; }")
	before := output(t, "nft", "list", "table", "ip", "nat")
	err := remover.RemoveRules(nil)
	if err == nil || !strings.Contains(err.Error(), "delete IPv4 chains of iptables-nft") {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff(before, output(t, "nft", "list", "table", "ip", "nat")); diff != "" {
		t.Errorf("something changed (-before +after):\n%s", diff)
	}
	finder := host.Finder{Remover: remover}
	found, err := finder.Find()
	if want := (map[host.Leftover]int{{Owner: host.OwnerKubeProxy, Kind: host.KindNFTChain}: 2}); err != nil || !cmp.Equal(want, found) {
		t.Errorf("left: %v, %v; want %v", found, err, want)
	}
	output(t, "nft", "delete map ip nat theirs")
	if err := remover.RemoveRules(nil); err != nil {
		t.Error(err)
	}
	if got := listed(t, "iptables-nft", "nat"); strings.Contains(got, "KUBE") {
		t.Errorf("left:\n%s", got)
	}
}

// A table that would not fit into the memory limit is not read: the error says so.
func TestALargeTableOfALegacyProxyIsRefused(t *testing.T) {
	enterNamespace(t)
	feed(t, "iptables-legacy", "*nat\n:KUBE-SERVICES - [0:0]\n"+strings.Repeat("-A KUBE-SERVICES -p tcp -m comment --comment \"one of many\" -j RETURN\n", 3000)+"COMMIT")
	limit := debug.SetMemoryLimit(2 << 20)
	defer debug.SetMemoryLimit(limit)
	if err := remover.RemoveRules(nil); err == nil || !strings.Contains(err.Error(), "memory limit of 2 MB") {
		t.Errorf("got %v", err)
	}
	debug.SetMemoryLimit(limit)
	if err := remover.RemoveRules(nil); err != nil {
		t.Error(err)
	}
	if got := listed(t, "iptables-legacy", "nat"); strings.Contains(got, "KUBE") {
		t.Errorf("left:\n%.500s", got)
	}
}

// A look for leftovers that came back happens every few seconds. Of a proxy that uses
// iptables-legacy, the rules are read once.
func BenchmarkFind(b *testing.B) {
	const rules = 20_000
	for name, leave := range map[string]func(){
		"nothing": func() {},
		"legacy": func() {
			feed(b, "iptables-legacy", "*nat\n:KUBE-SERVICES - [0:0]\n"+strings.Repeat("-A KUBE-SERVICES -p tcp -m comment --comment \"one of many\" -j RETURN\n", rules)+"COMMIT")
		},
		"nft": func() {
			feed(b, "iptables-nft", "*nat\n:KUBE-SERVICES - [0:0]\n-A OUTPUT -j KUBE-SERVICES\nCOMMIT")
			feed(b, "ip6tables-nft", "*nat\n:KUBE-SERVICES - [0:0]\n-A OUTPUT -j KUBE-SERVICES\nCOMMIT")
		},
	} {
		b.Run(name, func(b *testing.B) {
			enterNamespace(b)
			leave()
			finder := host.Finder{Remover: remover}
			for b.Loop() {
				if _, err := finder.Find(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
