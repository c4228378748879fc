package conntrack

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/nettest"
)

// fill makes so many flows from different ports that are else like one.
func (n *namespace) fill(t testing.TB, like string, count int) {
	t.Helper()
	f := parse(t, like)
	n.create(t, count, func(i int) Flow {
		const ports = 1 << 15
		f.Source = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i / ports >> 8), byte(i / ports)}), uint16(1+i%ports))
		f.ReplyDest = f.Source
		return f
	})
}

const datagrams = "udp 172.30.0.10:53 from 10.0.0.3:8053"

// maxFile is the limit of the kernel's table.
const maxFile = "/proc/sys/net/netfilter/nf_conntrack_max"

// allow raises the limit of the kernel's table, which is one for all namespaces, until the
// test ends.
func allow(t testing.TB, count int) {
	t.Helper()
	before, err := os.ReadFile(maxFile)
	if err != nil {
		nettest.Missing(t, err)
	}
	var limit int
	if _, err := fmt.Sscan(string(before), &limit); err != nil {
		t.Fatal(err)
	}
	if limit >= count {
		return
	}
	if err := os.WriteFile(maxFile, fmt.Append(nil, count), 0o644); err != nil {
		t.Skipf("the limit of %d tracked flows can't be raised here: %v", limit, err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(maxFile, []byte(strings.TrimSpace(string(before))), 0o644); err != nil {
			t.Error(err)
		}
	})
}

// heapPeak returns the most that the heap has while f runs, beyond what it had before.
func heapPeak(f func()) uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	runtime.GC()
	metrics.Read(sample)
	base, peak := sample[0].Value.Uint64(), uint64(0)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Microsecond):
				metrics.Read(sample)
				peak = max(peak, sample[0].Value.Uint64())
			}
		}
	}()
	f()
	close(stop)
	<-stopped
	return peak - min(peak, base)
}

// A pass must not need memory for each flow there is: kube-proxy once took 12 GB
// (kubernetes/kubernetes#129982).
func TestMemoryDoesNotFollowTheTable(t *testing.T) {
	const (
		flows = 200_000 // in a slice they would be 23 MB
		most  = 16 << 20
	)
	n := newNamespace(t)
	allow(t, flows+10_000)
	n.fill(t, datagrams, flows)
	others := judge("172.30.0.11", "10.0.0.2:8053")
	for _, tt := range []struct {
		name    string
		stale   func(*Flow) bool
		deleted int
	}{
		{"nothing stale", others, 0},
		{"all stale", serving(model.IPv4), flows},
	} {
		table := n.open(t)
		var seen, deleted int
		var err error
		peak := heapPeak(func() { seen, deleted, _, err = table.sweep(t.Context(), model.IPv4, Filter{}, tt.stale) })
		if err != nil || seen != flows || deleted != tt.deleted {
			t.Fatalf("%s: %d seen, %d deleted, %v, want %d and %d", tt.name, seen, deleted, err, flows, tt.deleted)
		}
		t.Logf("%s: %d flows, %.1f MB at most", tt.name, flows, float64(peak)/(1<<20))
		if peak > most {
			t.Errorf("%s: %d bytes at most, want no more than %d", tt.name, peak, most)
		}
	}
}
