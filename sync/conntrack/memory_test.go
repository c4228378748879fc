package conntrack

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/netlink"

	"github.com/vmapd/vmapd/model"
)

// fill makes so many flows to a cluster IP that no endpoint answers for any more.
func (n *namespace) fill(t testing.TB, count int) {
	t.Helper()
	f := parse(t, "udp 172.30.0.10:53 from 10.0.0.3:8053")
	n.create(t, count, func(i int) flow {
		const ports = 1 << 15
		f.source = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i / ports >> 8), byte(i / ports)}), uint16(1+i%ports))
		f.replyDest = f.source
		return f
	})
}

// maxFile is the limit of the kernel's table.
const maxFile = "/proc/sys/net/netfilter/nf_conntrack_max"

// allow raises the limit of the kernel's table, which is one for all namespaces, until the
// test ends.
func allow(t testing.TB, count int) {
	t.Helper()
	before, err := os.ReadFile(maxFile)
	if err != nil {
		t.Skipf("no connection tracking: %v", err)
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
	n.fill(t, flows)
	stale := servingRules(model.IPv4)
	for _, tt := range []struct {
		name    string
		rules   *rules
		deleted int
	}{
		{"nothing stale", &rules{strays: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}, 0},
		{"all stale", stale, flows},
	} {
		table := n.open(t)
		var seen, deleted int
		var err error
		peak := heapPeak(func() { seen, deleted, err = table.sweep(t.Context(), model.IPv4, tt.rules) })
		if err != nil || seen != flows || deleted != tt.deleted {
			t.Fatalf("%s: %d seen, %d deleted, %v, want %d and %d", tt.name, seen, deleted, err, flows, tt.deleted)
		}
		t.Logf("%s: %d flows, %.1f MB at most", tt.name, flows, float64(peak)/(1<<20))
		if peak > most {
			t.Errorf("%s: %d bytes at most, want no more than %d", tt.name, peak, most)
		}
	}
}

// A query costs a visit of the whole table, so few flows are listed by one, and many by port.
func TestFewFlowsAreListedAtOnce(t *testing.T) {
	n := newNamespace(t)
	n.create(t, 1, func(int) flow { return parse(t, "udp 172.30.0.11:53 from 10.0.0.3:8053") })
	table := n.open(t)
	var asked []string
	table.ask = func(q query) (netlink.Message, error) {
		asked = append(asked, fmt.Sprintf("%v %d", q.protocol, q.port))
		return q.message()
	}
	nobody := func(p model.Protocol, port uint16) model.VIP {
		return model.VIP{Addr: netip.IPv6Loopback(), Protocol: p, Port: port}
	}
	changed := &rules{frontends: map[model.VIP]rule{nobody(model.UDP, 53): {}, nobody(model.UDP, 54): {}, nobody(model.TCP, 53): {}}}
	all := &rules{frontends: changed.frontends, strays: []netip.Prefix{netip.MustParsePrefix("10.99.0.0/16")}}
	pass := func(what string, r *rules, want ...string) {
		t.Helper()
		asked = nil
		if _, deleted, err := table.sweep(t.Context(), model.IPv4, r); err != nil || deleted > 0 {
			t.Fatalf("%s: %d deleted, %v", what, deleted, err)
		}
		if !slices.Equal(asked, want) {
			t.Errorf("%s: want %q, got %q", what, want, asked)
		}
	}
	pass("before all flows were listed", changed, "tcp 53", "udp 53", "udp 54")
	pass("the first pass of a daemon", all, "tcp 0", "udp 0")
	pass("few flows", changed, "tcp 53", "udp 0")
	n.fill(t, fewFlows)
	pass("more flows meanwhile", changed, "tcp 53", "udp 0")
	pass("many flows", changed, "tcp 53", "udp 53", "udp 54")
}

// BenchmarkPassOverFewFlows is a pass for a Service with two ports, by a query for each and by one for both.
func BenchmarkPassOverFewFlows(b *testing.B) {
	n := newNamespace(b)
	n.fill(b, 3000)
	r := &rules{frontends: map[model.VIP]rule{}}
	for port := range uint16(2) {
		r.frontends[model.VIP{Addr: netip.IPv6Loopback(), Protocol: model.UDP, Port: 30000 + port}] = rule{}
	}
	for _, few := range []bool{false, true} {
		b.Run(fmt.Sprintf("few=%t", few), func(b *testing.B) {
			table := n.open(b)
			for b.Loop() {
				table.few[model.IPv4] = few
				if _, _, err := table.sweep(b.Context(), model.IPv4, r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPass is a pass over a table with a million UDP flows of others.
func BenchmarkPass(b *testing.B) {
	const flows = 1_000_000
	n := newNamespace(b)
	allow(b, flows+100_000)
	n.fill(b, flows)
	for _, frontends := range []int{1, maxQueries, maxQueries + 1} {
		b.Run(fmt.Sprintf("ports=%d", frontends), func(b *testing.B) {
			r := &rules{frontends: map[model.VIP]rule{}}
			for i := range frontends {
				r.frontends[model.VIP{Addr: netip.IPv6Loopback(), Protocol: model.UDP, Port: uint16(30000 + i)}] = rule{}
			}
			b.ReportAllocs()
			var peak uint64
			for b.Loop() {
				peak = max(peak, heapPeak(func() {
					table := n.open(b)
					defer table.close()
					if _, _, err := table.sweep(b.Context(), model.IPv4, r); err != nil {
						b.Fatal(err)
					}
				}))
			}
			b.ReportMetric(float64(peak), "heap-peak-B")
		})
	}
	b.Run("deleting", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			if len(n.list(b)) == 0 {
				n.fill(b, flows)
			}
			b.StartTimer()
			table := n.open(b)
			if _, deleted, err := table.sweep(b.Context(), model.IPv4, servingRules(model.IPv4)); err != nil || deleted != flows {
				b.Fatalf("%d deleted, %v", deleted, err)
			}
		}
	})
}
