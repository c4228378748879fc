package nodesetup

import (
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// defaults are kube-proxy's.
var defaults = Conntrack{
	MaxPerCore: 32768, Min: 131072,
	TCPEstablishedTimeout: 24 * time.Hour, TCPCloseWaitTimeout: time.Hour,
}

// Facts are the CPUs and the files of a node.
type Facts struct {
	CPUs   int
	Values map[string]string
}

func (f Facts) have(file string) string { return f.Values[file] }

// fresh is a node as the kernel leaves it.
func fresh(cpus int) Facts {
	return Facts{CPUs: cpus, Values: map[string]string{
		fileMax: "65536", fileBuckets: "65536",
		fileTCPEstablishedTimeout: "432000", fileTCPCloseWaitTimeout: "60", fileTCPBeLiberal: "0",
		fileUDPTimeout: "30", fileUDPStreamTimeout: "120",
	}}
}

func (f Facts) with(file, value string) Facts {
	f.Values[file] = value
	return f
}

func (f Facts) without(file string) Facts {
	delete(f.Values, file)
	return f
}

func TestPlan(t *testing.T) {
	const maxByDefault = "131072"
	timeouts := map[string]string{fileTCPEstablishedTimeout: "86400", fileTCPCloseWaitTimeout: "3600"}
	and := func(more map[string]string) map[string]string {
		for k, v := range timeouts {
			if _, ok := more[k]; !ok {
				more[k] = v
			}
		}
		return more
	}
	onlyMax := func(perCore, floor int32) Conntrack { return Conntrack{MaxPerCore: perCore, Min: floor} }
	for _, tt := range []struct {
		name  string
		c     Conntrack
		facts Facts
		want  map[string]string // file to value
	}{
		{
			"kube-proxy's defaults on a small node: the minimum", defaults, fresh(2),
			and(map[string]string{fileMax: maxByDefault}),
		},
		{"one CPU more", defaults, fresh(5), and(map[string]string{fileMax: "163840"})},
		{"a large node: the hash table grows", defaults, fresh(16), and(map[string]string{
			fileMax:      "524288",
			fileHashSize: "131072",
		})},
		{"a node with very many CPUs: a million at most", defaults, fresh(256), and(map[string]string{
			fileMax:      "1048576",
			fileHashSize: "262144",
		})},
		{
			"a minimum above a million is what the operator gets", onlyMax(32768, 2000000), fresh(256),
			map[string]string{fileMax: "2000000", fileHashSize: "500000"},
		},
		{"the hash table is exactly a quarter", defaults, fresh(8), and(map[string]string{fileMax: "262144"})},
		{
			"the hash table is one short of a quarter", defaults, fresh(8).with(fileBuckets, "65535"),
			and(map[string]string{fileMax: "262144", fileHashSize: "65536"}),
		},
		{
			"the hash table never shrinks", defaults, fresh(2).with(fileBuckets, "1048576"),
			and(map[string]string{fileMax: maxByDefault}),
		},
		{"nor does the limit", defaults, fresh(2).with(fileMax, "1000000"), timeouts},
		{
			"a limit that is lower by one", defaults, fresh(2).with(fileMax, "131071"),
			and(map[string]string{fileMax: maxByDefault}),
		},
		{"no limit is higher than any", defaults, fresh(2).with(fileMax, "0"), timeouts},
		{
			"a higher limit, with a small hash table", defaults, fresh(2).with(fileMax, "1000000").with(fileBuckets, "512"),
			and(map[string]string{fileHashSize: "32768"}),
		},
		{"all is right already", defaults, fresh(2).with(fileMax, maxByDefault).with(fileTCPEstablishedTimeout,
			"86400").with(fileTCPCloseWaitTimeout, "3600"), nil},
		{
			"the hash size can't be read", onlyMax(32768, 0), fresh(2).without(fileBuckets),
			map[string]string{fileHashSize: "16384"},
		},
		{
			"the hash size can be read in the other file alone", onlyMax(32768, 0),
			fresh(2).without(fileBuckets).with(fileHashSize, "65536"), nil,
		},
		{"the limit can't be read", onlyMax(32768, 0), fresh(2).without(fileMax), map[string]string{fileMax: "65536"}},
		{"none per core: the limit is left alone, whatever the minimum", onlyMax(0, 131072), fresh(2), nil},
		{"a negative minimum", onlyMax(32768, -5), fresh(3), map[string]string{fileMax: "98304"}},
		{
			"more than the kernel can count", onlyMax(math.MaxInt32, math.MaxInt32), fresh(64),
			map[string]string{fileMax: "2147483647", fileHashSize: "536870911"},
		},
		{
			"every other setting",
			Conntrack{TCPBeLiberal: true, UDPTimeout: 10 * time.Second, UDPStreamTimeout: time.Minute},
			fresh(2),
			map[string]string{fileTCPBeLiberal: "1", fileUDPTimeout: "10", fileUDPStreamTimeout: "60"},
		},
		{
			"a timeout of seconds and a bit",
			Conntrack{UDPTimeout: 1999 * time.Millisecond},
			fresh(2),
			map[string]string{fileUDPTimeout: "1"},
		},
		{
			"a timeout of less than a second",
			Conntrack{UDPTimeout: time.Millisecond},
			fresh(2),
			map[string]string{fileUDPTimeout: "1"},
		},
		{"a negative timeout", Conntrack{UDPTimeout: -time.Second, TCPCloseWaitTimeout: -1}, fresh(2), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got map[string]string
			for _, w := range Plan(tt.c, tt.facts.CPUs, tt.facts.have) {
				if got == nil {
					got = map[string]string{}
				}
				if _, twice := got[w.File]; twice {
					t.Errorf("%s twice", w.File)
				}
				got[w.File] = w.Value
				if w.Why == "" {
					t.Errorf("%s: no reason is given", w.File)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAWriteSaysWhatWasThereAndWhy(t *testing.T) {
	got := Plan(Conntrack{MaxPerCore: 100000, Min: 5}, 3, fresh(3).with(fileBuckets, "512").have)
	want := []Write{
		{fileMax, "300000", "65536", "the greater of conntrack.maxPerCore 100000 for 3 CPUs and conntrack.min 5"},
		{fileHashSize, "75000", "512", "a quarter of the connections, for short chains in the hash table"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

func TestCountCPUs(t *testing.T) {
	n := newNode(t)
	for _, tt := range []struct {
		list string
		want int
	}{
		{"0-3,8,10-11", 7},
		{"", runtime.NumCPU()},
		{"0,x", runtime.NumCPU()},
	} {
		n.put(fileOnlineCPUs, tt.list)
		if got := n.cpus(); got != tt.want {
			t.Errorf("%d CPUs for %q, want %d", got, tt.list, tt.want)
		}
	}
}
