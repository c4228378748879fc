package conntrack

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"

	"github.com/vmapd/vmapd/model"
)

// judge returns what is stale where a cluster IP's port 53 has one endpoint.
func judge(vip, endpoint string) func(*Flow) bool {
	at := model.VIP{Addr: netip.MustParseAddr(vip), Protocol: model.UDP, Port: 53}
	sp := &model.ServicePort{
		Name: model.ServicePortName{Protocol: model.UDP}, Frontends: []model.Frontend{{VIP: at}},
		Endpoints: []model.Endpoint{{Addr: netip.MustParseAddrPort(endpoint)}},
	}
	f := &family{applied: nothing, owners: map[model.VIP]*model.ServicePort{at: sp}}
	return func(flow *Flow) bool { return f.stale(&pass{now: time.Now()}, flow) }
}

// serving is judge with the endpoint 10.0.0.2:8053, and its IPv6 twin.
func serving(f model.Family) func(*Flow) bool {
	if f == model.IPv6 {
		return judge("fd00:172:30::10", "[fd00:10::2]:8053")
	}
	return judge("172.30.0.10", "10.0.0.2:8053")
}

func TestSweepDeletesWhatIsStaleAndNothingElse(t *testing.T) {
	zone := parse(t, "udp 172.30.0.10:53 from 10.0.0.3:8053")
	zone.Zone = true
	stay := []string{
		"udp 172.30.0.10:53 from 10.0.0.2:8053",
		"udp [fd00:172:30::10]:53 from [fd00:10::2]:8053",
		"udp 172.30.0.11:53 from 10.0.0.3:8053",
		"udp 172.30.0.10:54 from 10.0.0.3:8053",
		"udp 192.168.98.10:53",
		"tcp 172.30.0.10:53 from 10.0.0.3:8053",
		"sctp 172.30.0.10:53 from 10.0.0.3:8053",
		"udp [fd00:172:30::11]:53 from [fd00:10::3]:8053",
		"tcp [fd00:172:30::10]:53 from [fd00:10::3]:8053",
	}
	go4 := []string{
		"udp 172.30.0.10:53 from 10.0.0.3:8053",
		"udp 172.30.0.10:53 from 10.0.0.2:8054",
		"udp 172.30.0.10:53",
	}
	go6 := []string{
		"udp [fd00:172:30::10]:53 from [fd00:10::3]:8053",
		"udp [fd00:172:30::10]:53",
	}
	n := newNamespace(t)
	n.create(t, 1, func(int) Flow { return zone })
	numbered := func(texts []string, first int) func(i int) Flow {
		return func(i int) Flow {
			f := parse(t, texts[i])
			f.Source = netip.AddrPortFrom(f.Source.Addr(), uint16(first+i))
			f.ReplyDest = f.Source
			return f
		}
	}
	n.create(t, len(stay), numbered(stay, 1))
	want := n.list(t)
	stale := slices.Concat(go4, go6)
	n.create(t, len(stale), numbered(stale, 1001))
	if got := len(n.list(t)); got != len(stay)+len(stale)+1 {
		t.Fatalf("%d flows, want %d: nothing is tested", got, len(stay)+len(stale)+1)
	}
	for _, tt := range []struct {
		family        model.Family
		seen, deleted int
	}{{model.IPv4, 10, len(go4)}, {model.IPv6, 5, len(go6)}} {
		seen, deleted, _, err := n.open(t).sweep(t.Context(), tt.family, Filter{}, serving(tt.family))
		if err != nil {
			t.Fatal(err)
		}
		if seen != tt.seen || deleted != tt.deleted {
			t.Errorf("%v: saw %d flows and deleted %d, want %d and %d", tt.family, seen, deleted, tt.seen, tt.deleted)
		}
	}
	if diff := cmp.Diff(want, n.list(t)); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
}

// Between the list and the deletion a flow may end, and another of the same sender begin.
func TestANewerFlowIsNotHit(t *testing.T) {
	n := newNamespace(t)
	stale := parse(t, "udp 172.30.0.10:53 from 10.0.0.3:8053")
	n.create(t, 1, func(int) Flow { return stale })
	table := n.open(t)
	var found []Flow
	if err := table.List(t.Context(), model.IPv4, Filter{}, func(f *Flow) { found = append(found, *f) }); err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 || found[0].id == 0 {
		t.Fatalf("found %+v, want one flow with an id", found)
	}
	if deleted, err := table.delete(&found[0]); !deleted || err != nil {
		t.Fatalf("deleted %v, %v, want 1", deleted, err)
	}
	if deleted, err := table.delete(&found[0]); deleted || err != nil {
		t.Errorf("deleted %v, %v, want none, and no error", deleted, err)
	}
	n.create(t, 1, func(int) Flow { return parse(t, "udp 172.30.0.10:53 from 10.0.0.2:8053") })
	if deleted, err := table.delete(&found[0]); deleted || err != nil {
		t.Errorf("deleted %v, %v, want none: it has another endpoint", deleted, err)
	}
	n.create(t, 1, func(int) Flow { return parse(t, "udp 172.30.0.11:53 from 10.0.0.3:8053") })
	found[0].id++
	if deleted, err := table.delete(&found[0]); deleted || err != nil {
		t.Errorf("deleted %v, %v, want none: it has another id", deleted, err)
	}
	if got := len(n.list(t)); got != 2 {
		t.Errorf("%d flows left, want 2", got)
	}
}

// A flow that the kernel does not let go (one that it has offloaded, say) is an error, but
// all others are deleted.
func TestWhatIsRefusedKeepsNobodyElse(t *testing.T) {
	n := newNamespace(t)
	bad := parse(t, "udp 172.30.0.10:53 from 10.0.0.3:8053")
	good := parse(t, "udp 172.30.0.11:53 from 10.0.0.3:8053")
	n.create(t, 1, func(int) Flow { return good })
	table := n.open(t)
	var flows []Flow
	if err := table.List(t.Context(), model.IPv4, Filter{}, func(f *Flow) {
		bad.id = f.id
		bad.ReplyDest = netip.AddrPort{} // nothing the kernel could look for
		flows = []Flow{bad, *f}
	}); err != nil {
		t.Fatal(err)
	}
	if deleted, err := table.delete(&flows[0]); deleted || err == nil {
		t.Errorf("deleted %v, error %v, want an error", deleted, err)
	}
	if deleted, err := table.delete(&flows[1]); !deleted || err != nil {
		t.Errorf("deleted %v, error %v, want it deleted", deleted, err)
	}
	if got := n.list(t); len(got) > 0 {
		t.Errorf("left: %q", got)
	}
}

// A connection lasts from sweep to sweep, because its end makes others' batches wait.
func TestSweepsShareTheirConnections(t *testing.T) {
	n := newNamespace(t)
	k := &Table{NetNS: n.fd()}
	defer k.close()
	stale := serving(model.IPv4)
	var first *netlink.Conn
	for range 2 {
		n.fill(t, datagrams, 100)
		if _, deleted, _, err := k.sweep(t.Context(), model.IPv4, Filter{}, stale); err != nil || deleted != 100 {
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
	if _, _, _, err := k.sweep(ctx, model.IPv4, Filter{}, stale); err == nil {
		t.Error("a sweep succeeded after the end of its context")
	}
	if k.dumps != nil {
		t.Error("connections of a sweep that failed are still open: the rest of a list may be in them")
	}
	if _, _, _, err := k.sweep(t.Context(), model.IPv4, Filter{}, stale); err != nil {
		t.Errorf("after a sweep that failed: %v", err)
	}
}
