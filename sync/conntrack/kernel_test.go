package conntrack

import (
	"context"
	"net/netip"
	"runtime"
	"slices"
	"testing"

	"github.com/mdlayher/netlink"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// Between the list and the deletion a flow may end, and another of the same sender begin. A flow that the kernel does
// not let go (one that it has offloaded, say) is an error, but all others are deleted.
func TestSweepDeletesThisFlowAndNoOther(t *testing.T) {
	for name, tt := range map[string]struct {
		flow    string
		change  func(f *Flow)
		deleted int
		fails   bool
	}{
		"all":              {datagrams, func(*Flow) {}, 2, false},
		"all of IPv6":      {"tcp [fd00:172:30::10]:53 from [fd00:10::2]:8053", func(*Flow) {}, 2, false},
		"a newer one":      {datagrams, func(f *Flow) { f.id++ }, 1, false},
		"a refused one":    {datagrams, func(f *Flow) { f.reply = nil }, 1, true},
		"one that is gone": {datagrams, func(f *Flow) { f.reply = slices.Concat(f.reply); f.reply[len(f.reply)-3]++ }, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNamespace(t)
			n.createEach(t, []string{tt.flow, tt.flow}, 1)
			changed, of, left := false, model.FamilyOf(parse(t, tt.flow).Dest.Addr()), 0
			deleted, err := n.open(t).sweep(t.Context(), of, Filter{}, func(f *Flow) bool {
				if !changed {
					tt.change(f)
				}
				changed = true
				return true
			})
			if err := n.open(t).List(t.Context(), of, Filter{}, func(*Flow) { left++ }); err != nil {
				t.Fatal(err)
			}
			if deleted != tt.deleted || left != 2-tt.deleted || (err != nil) != tt.fails {
				t.Errorf("deleted %d of 2 flows, %d are left, error %v", deleted, left, err)
			}
		})
	}
}

const datagrams = "udp 172.30.0.10:53 from 10.0.0.3:8053"

// A pass must not need memory for each flow there is: kube-proxy once took 12 GB
// (kubernetes/kubernetes#129982).
func TestMemoryDoesNotFollowTheTable(t *testing.T) {
	const flows, most = 100_000, 4 << 20 // in a slice they would be 12 MB
	n := newNamespace(t)
	n.fill(t, datagrams, flows)
	for _, stale := range []bool{false, true} {
		heap := func() uint64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		base, peak, seen := heap(), uint64(0), 0
		deleted, err := n.open(t).sweep(t.Context(), model.IPv4, Filter{}, func(*Flow) bool {
			if seen++; seen%(flows/10) == 0 {
				peak = max(peak, heap())
			}
			return stale
		})
		if want := map[bool]int{true: flows}[stale]; err != nil || seen != flows || deleted != want {
			t.Fatalf("%d seen, %d deleted, %v, want %d and %d", seen, deleted, err, flows, want)
		}
		if peak > base+most {
			t.Errorf("stale %v: %d bytes of heap, from %d", stale, peak, base)
		}
	}
}

// The kernel lists what a filter selects, and nothing else, with all that is known of each flow.
func TestTheKernelFilters(t *testing.T) {
	n := newNamespace(t)
	texts := []string{
		"udp 172.30.0.10:53 from 10.0.0.2:8053",
		"udp 172.30.0.10:53 from 10.0.0.2:8054",
		"udp 172.30.0.10:53 from 10.0.0.3:8053",
		"udp 172.30.0.11:53 from 10.0.0.2:8053",
		"udp 172.30.0.10:54",
		"tcp 172.30.0.10:53 from 10.0.0.2:8053",
		"sctp 172.30.0.10:53 from 10.0.0.2:8053",
		"udp [fd00:172:30::10]:53 from [fd00:10::2]:8053",
		"udp [fd00:172:30::11]:53 from [fd00:10::3]:8053",
		"udp [fd00:172:30::10]:54 from [fd00:10::3]:8054",
		"tcp 172.30.0.11:80 unanswered",
		"tcp 172.30.0.11:80 from 10.0.0.2:8053 in a zone",
	}
	const first = 41000
	n.createEach(t, texts, first)
	at := netip.MustParseAddrPort
	for name, tt := range map[string]struct {
		Filter
		want []int // of texts
	}{
		"all":           {Filter{}, []int{0, 1, 2, 3, 4, 5, 6, 10, 11}},
		"a protocol":    {Filter{Protocol: model.UDP}, []int{0, 1, 2, 3, 4}},
		"an endpoint":   {Filter{Protocol: model.UDP, Endpoint: at("10.0.0.2:8053")}, []int{0, 3}},
		"of SCTP":       {Filter{Protocol: model.SCTP, Endpoint: at("10.0.0.2:8053")}, []int{6}},
		"of IPv6":       {Filter{Protocol: model.UDP, Endpoint: at("[fd00:10::2]:8053")}, []int{7, 8}},
		"a frontend":    {Filter{Protocol: model.UDP, Dest: at("172.30.0.10:53")}, []int{0, 1, 2}},
		"of IPv6, too":  {Filter{Protocol: model.UDP, Dest: at("[fd00:172:30::10]:53")}, []int{7, 8}},
		"a port":        {Filter{Protocol: model.UDP, Dest: at("0.0.0.0:53")}, []int{0, 1, 2, 3}},
		"a port of TCP": {Filter{Protocol: model.TCP, Dest: at("0.0.0.0:53")}, []int{5}},
		"both":          {Filter{Protocol: model.UDP, Dest: at("172.30.0.10:53"), Endpoint: at("10.0.0.3:8053")}, []int{2}},
		"nothing":       {Filter{Protocol: model.UDP, Endpoint: at("10.0.0.9:8053")}, nil},
	} {
		family := model.IPv4
		if tt.Dest.Addr().Is6() || tt.Endpoint.Addr().Is6() {
			family = model.IPv6
		}
		var got []int
		err := n.open(t).List(t.Context(), family, tt.Filter, func(f *Flow) {
			i := int(f.Source.Port()) - first
			got = append(got, i)
			want := parse(t, texts[i])
			want.Source = f.Source
			testaid.Equal(t, texts[i], want, *f, sameFlow)
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if slices.Sort(got); !slices.Equal(got, tt.want) {
			t.Errorf("%s: the kernel lists %v, want %v", name, got, tt.want)
		}
	}
}

// A connection lasts from sweep to sweep, because its end makes others' batches wait.
func TestSweepsShareTheirConnections(t *testing.T) {
	n := newNamespace(t)
	k := n.open(t)
	stale := func(*Flow) bool { return true }
	var first *netlink.Conn
	for range 2 {
		n.fill(t, datagrams, 100)
		if deleted, err := k.sweep(t.Context(), model.IPv4, Filter{}, stale); err != nil || deleted != 100 {
			t.Fatalf("%d flows deleted, %v; want 100", deleted, err)
		}
		if first == nil {
			first = k.dumps
		}
	}
	if k.dumps != first {
		t.Error("the second sweep had other connections than the first")
	}

	n.fill(t, datagrams, 100)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.sweep(ctx, model.IPv4, Filter{}, stale); err == nil {
		t.Error("a sweep succeeded after the end of its context")
	}
	if k.dumps != nil {
		t.Error("connections of a sweep that failed are still open: the rest of a list may be in them")
	}
	if _, err := k.sweep(t.Context(), model.IPv4, Filter{}, stale); err != nil {
		t.Errorf("after a sweep that failed: %v", err)
	}
}
