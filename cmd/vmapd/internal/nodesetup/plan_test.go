package nodesetup

import (
	"fmt"
	"maps"
	"math"
	"runtime"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// defaults are kube-proxy's.
var defaults = Conntrack{
	MaxPerCore: new(int32(32768)), Min: new(int32(131072)),
	TCPEstablishedTimeout: &metav1.Duration{Duration: 24 * time.Hour}, TCPCloseWaitTimeout: &metav1.Duration{Duration: time.Hour},
}

// fresh is a node as the kernel leaves it.
var fresh = map[string]string{
	fileMax: "65536", fileBuckets: "65536",
	fileTCPEstablishedTimeout: "432000", fileTCPCloseWaitTimeout: "60", fileTCPBeLiberal: "0",
	fileUDPTimeout: "30", fileUDPStreamTimeout: "120",
}

func of(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }

// plan returns the values to write, by file.
func plan(c Conntrack, cpus int, have map[string]string) map[string]string {
	writes := map[string]string{}
	for _, w := range Plan(c, cpus, func(file string) string { return have[file] }) {
		writes[w.File] = w.Value
	}
	return writes
}

func TestPlan(t *testing.T) {
	for _, tt := range []struct {
		name               string
		perCore, floor     int32
		cpus               int
		max, buckets, hash string // of the node
		wantMax, wantHash  string // "": it stays
	}{
		{"a small node: the minimum", 32768, 131072, 2, "65536", "65536", "", "131072", ""},
		{"one CPU more", 32768, 131072, 5, "65536", "65536", "", "163840", ""},
		{"a large node: the hash table grows", 32768, 131072, 16, "65536", "65536", "", "524288", "131072"},
		{"very many CPUs: a million at most", 32768, 131072, 256, "65536", "65536", "", "1048576", "262144"},
		{"a minimum above a million", 32768, 2000000, 256, "65536", "65536", "", "2000000", "500000"},
		{"the hash table is exactly a quarter", 32768, 131072, 8, "65536", "65536", "", "262144", ""},
		{"the hash table is one short of a quarter", 32768, 131072, 8, "65536", "65535", "", "262144", "65536"},
		{"the hash table never shrinks", 32768, 131072, 2, "65536", "1048576", "", "131072", ""},
		{"nor does the limit", 32768, 131072, 2, "1000000", "65536", "", "", ""},
		{"a limit that is lower by one", 32768, 131072, 2, "131071", "65536", "", "131072", ""},
		{"no limit is higher than any", 32768, 131072, 2, "0", "65536", "", "", ""},
		{"a higher limit, with a small hash table", 32768, 131072, 2, "1000000", "512", "", "", "32768"},
		{"the hash size can't be read", 32768, 0, 2, "65536", "", "", "", "16384"},
		{"the hash size can be read in the other file alone", 32768, 0, 2, "65536", "", "65536", "", ""},
		{"the limit can't be read", 32768, 0, 2, "", "65536", "", "65536", ""},
		{"none per core: the limit stays, whatever the minimum", 0, 131072, 2, "65536", "65536", "", "", ""},
		{"a negative minimum", 32768, -5, 3, "65536", "65536", "", "98304", ""},
		{"more than the kernel can count", math.MaxInt32, math.MaxInt32, 64, "65536", "65536", "", "2147483647", "536870911"},
	} {
		want := map[string]string{fileMax: tt.wantMax, fileHashSize: tt.wantHash}
		maps.DeleteFunc(want, func(_, value string) bool { return value == "" })
		have := map[string]string{fileMax: tt.max, fileBuckets: tt.buckets, fileHashSize: tt.hash}
		testaid.Equal(t, tt.name, want, plan(Conntrack{MaxPerCore: &tt.perCore, Min: &tt.floor}, tt.cpus, have))
	}
	for _, tt := range []struct {
		c    Conntrack
		want map[string]string
	}{
		{
			Conntrack{TCPBeLiberal: true, UDPTimeout: of(10 * time.Second), UDPStreamTimeout: of(time.Minute)},
			map[string]string{fileTCPBeLiberal: "1", fileUDPTimeout: "10", fileUDPStreamTimeout: "60"},
		},
		{Conntrack{UDPTimeout: of(30 * time.Second)}, map[string]string{}}, // it is so
		{Conntrack{UDPTimeout: of(1999 * time.Millisecond)}, map[string]string{fileUDPTimeout: "1"}},
		{Conntrack{UDPTimeout: of(time.Millisecond)}, map[string]string{fileUDPTimeout: "1"}},
		{Conntrack{UDPTimeout: of(-time.Second), TCPCloseWaitTimeout: &metav1.Duration{Duration: -1}}, map[string]string{}},
	} {
		testaid.Equal(t, fmt.Sprintf("%+v", tt.c), tt.want, plan(tt.c, 2, fresh))
	}
}

func TestAWriteSaysWhatWasThereAndWhy(t *testing.T) {
	have := map[string]string{fileMax: "65536", fileBuckets: "512"}
	got := Plan(Conntrack{MaxPerCore: new(int32(100000)), Min: new(int32(5))}, 3, func(file string) string { return have[file] })
	want := []Write{
		{fileMax, "300000", "65536", "the greater of conntrack.maxPerCore 100000 for 3 CPUs and conntrack.min 5"},
		{fileHashSize, "75000", "512", "a quarter of the connections, for short chains in the hash table"},
	}
	testaid.Equal(t, "writes", want, got)
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
