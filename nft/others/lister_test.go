package others

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

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
