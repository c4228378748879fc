package others

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// theirTables are what iptables-nft makes, with a rule that google/nftables knows in part.
const theirTables = `table ip nat {
	chain KUBE-SERVICES { counter jump KUBE-SVC-X; }
	chain KUBE-SVC-X { counter; goto OTHER; }
	chain OTHER { counter; }
	chain PREROUTING {
		type nat hook prerouting priority -100;
		meta mark 1-5 accept
		jump KUBE-SERVICES
		jump OTHER
		ip protocol tcp goto KUBE-SVC-X
	}
}
table ip filter { chain KUBE-FORWARD { drop; }; chain FORWARD { type filter hook forward priority 0; jump KUBE-FORWARD; }; }
table ip theirs { chain KUBE-SERVICES { drop; }; }
`

func isKubes(chain string) bool { return strings.HasPrefix(chain, "KUBE-") }

func TestChainsOfIPTablesAreRemovedWithTheRulesThatLeadThere(t *testing.T) {
	alone(t)
	load(t, theirTables)
	got, err := IPTablesChains(model.IPv4)
	want := []string{"KUBE-SERVICES", "KUBE-SVC-X", "OTHER", "PREROUTING", "KUBE-FORWARD", "FORWARD"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("chains (-want +got):\n%s%v", diff, err)
	}
	if n, err := IPTablesRules(model.IPv4, "PREROUTING"); n != 4 || err != nil {
		t.Errorf("want 4 rules; got %d, %v", n, err)
	}
	if n, err := IPTablesRules(model.IPv6, "PREROUTING"); n != 0 || err != nil {
		t.Errorf("want no rules of a table that is not there; got %d, %v", n, err)
	}
	for range 2 { // the second time, there is nothing
		if err := RemoveIPTablesChains(model.IPv4, isKubes); err != nil {
			t.Fatal(err)
		}
	}
	if err := RemoveIPTablesChains(model.IPv6, isKubes); err != nil {
		t.Error(err)
	}
	out, err := exec.Command("nft", "list", "ruleset").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for _, part := range []string{"KUBE-SVC", "KUBE-FORWARD", "chain OTHER", "chain KUBE-SERVICES", "jump OTHER", "meta mark"} {
		if strings.Contains(string(out), part) {
			kept = append(kept, part)
		}
	}
	// The table theirs is not one of iptables.
	if diff := cmp.Diff([]string{"chain OTHER", "chain KUBE-SERVICES", "jump OTHER", "meta mark"}, kept); diff != "" {
		t.Errorf("what is left (-want +got):\n%s\n%s", diff, out)
	}
}

// A batch that was made from rules that have changed since is refused, but the last try is not.
func TestARemovalIsOfThePresentRules(t *testing.T) {
	alone(t)
	load(t, theirTables)
	change := func() { load(t, "add table ip another\ndelete table ip another\n") }
	r := remover{family: model.IPv4, theirs: func(chain string) bool {
		if chain == "OTHER" {
			change()
		}
		return isKubes(chain)
	}}
	if err := r.remove(false); !errors.Is(err, unix.ERESTART) {
		t.Errorf("want %v, got %v", unix.ERESTART, err)
	}
	if err := r.remove(true); err != nil {
		t.Error(err)
	}
	names, err := IPTablesChains(model.IPv4)
	if slices.ContainsFunc(names, isKubes) || err != nil {
		t.Errorf("left are %v, %v", names, err)
	}
}

func TestChainsRulesAndElementsAreListed(t *testing.T) {
	alone(t)
	load(t, `table inet theirs {
	set few { type ipv4_addr; flags interval; elements = { 10.0.0.0/24, 10.1.0.1 }; }
	chain input { type filter hook input priority 7; policy drop; meta mark 1-5 accept; accept; }
	chain other { drop; }
}
table netdev early { chain ingress { type filter hook ingress device "lo" priority 1; }; }
`)
	var l Lister
	defer l.Close()
	got, err := l.Chains(unix.NFPROTO_INET)
	want := []Chain{
		{Family: 1, Table: "theirs", Name: "input", Type: "filter", Hook: 1, Priority: 7, Drops: true, Uses: 2},
		{Family: 1, Table: "theirs", Name: "other", Uses: 1},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("chains (-want +got):\n%s%v", diff, err)
	}
	early, err := l.Chains(unix.NFPROTO_NETDEV)
	if len(early) != 1 || early[0].Device != "lo" || err != nil {
		t.Errorf("want a chain of lo; got %+v, %v", early, err)
	}
	n := 0
	if err := l.Rules(want[0], func(expressions []byte) { n += min(1, len(expressions)) }); n != 2 || err != nil {
		t.Errorf("want 2 rules; got %d, %v", n, err)
	}
	for most, want := range map[int]int{100: 5, 5: 5, 4: 0} { // the ends of intervals are elements, too
		list, err := l.Elements(unix.NFPROTO_INET, "theirs", "few", most)
		if len(list) != want || err != nil {
			t.Errorf("at most %d elements: want %d; got %v, %v", most, want, list, err)
		}
	}
	if _, err := l.Elements(unix.NFPROTO_INET, "theirs", "absent", 1); !errors.Is(err, unix.ENOENT) {
		t.Errorf("a set that is not there: want %v, got %v", unix.ENOENT, err)
	}
}

// BenchmarkManyChains lists and removes as many chains as kube-proxy has for 10,000 Services.
func BenchmarkManyChains(b *testing.B) {
	runtime.LockOSThread() // and never unlocked
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		b.Skip(err)
	}
	const chains = 40_000
	var text strings.Builder
	text.WriteString("table ip nat {\n")
	for i := range chains {
		fmt.Fprintf(&text, "chain KUBE-SVC-%d { counter; }\n", i)
	}
	text.WriteString("chain PREROUTING { type nat hook prerouting priority -100; jump KUBE-SVC-1; }\n}\n")
	var l Lister
	defer l.Close()
	var list, remove time.Duration
	for b.Loop() {
		load(b, text.String())
		began := time.Now()
		if names, err := l.IPTablesChains(model.IPv4); len(names) <= chains || err != nil {
			b.Fatalf("%d chains, %v", len(names), err)
		}
		list += time.Since(began)
		began = time.Now()
		if err := RemoveIPTablesChains(model.IPv4, isKubes); err != nil {
			b.Fatal(err)
		}
		remove += time.Since(began)
	}
	b.ReportMetric(float64(list.Milliseconds())/float64(b.N), "ms/list")
	b.ReportMetric(float64(remove.Milliseconds())/float64(b.N), "ms/removal")
	b.ReportMetric(0, "ns/op")
}
