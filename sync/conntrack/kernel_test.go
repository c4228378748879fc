package conntrack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	timo "github.com/ti-mo/conntrack"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// namespace is a network namespace of its own.
type namespace struct{ *os.File }

// newNamespace returns one, until the test ends.
func newNamespace(t testing.TB) *namespace {
	t.Helper()
	n := &namespace{}
	made := make(chan error)
	go func() {
		// The thread stays locked and ends with the goroutine: nothing else may run there.
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			n.File, err = os.Open("/proc/thread-self/ns/net")
		}
		made <- err
	}()
	if err := <-made; err != nil {
		t.Skipf("needs the privilege to create a network namespace (run under unshare -rn): %v", err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

func (n *namespace) fd() int { return int(n.Fd()) }

const (
	ctaTimeout = 7
	ctaNATDst  = 13
)

// creation is what makes the kernel track a flow, and translate it if its replies are to
// come from elsewhere than where it goes.
func (f *flow) creation(t testing.TB) netlink.Message {
	t.Helper()
	ae := netlink.NewAttributeEncoder()
	ae.Nested(nl.CTA_TUPLE_ORIG, func(ae *netlink.AttributeEncoder) error {
		return encodeTuple(ae, f.protocol, f.source, f.dest)
	})
	// With translation, the kernel makes the reply's tuple of this one.
	ae.Nested(nl.CTA_TUPLE_REPLY, func(ae *netlink.AttributeEncoder) error {
		return encodeTuple(ae, f.protocol, f.dest, f.source)
	})
	if f.replySource != f.dest {
		ae.Nested(ctaNATDst, func(ae *netlink.AttributeEncoder) error {
			const minIPv4, protocol, minIPv6, minPort = 1, 3, 4, 1
			kind := uint16(minIPv4)
			if f.replySource.Addr().Is6() {
				kind = minIPv6
			}
			ae.Bytes(kind, f.replySource.Addr().AsSlice())
			ae.Nested(protocol, func(ae *netlink.AttributeEncoder) error {
				ae.Bytes(minPort, binary.BigEndian.AppendUint16(nil, f.replySource.Port()))
				return nil
			})
			return nil
		})
	}
	status := uint32(1 << 3) // IPS_CONFIRMED
	if f.answered {
		status |= ipsSeenReply
	}
	ae.Bytes(nl.CTA_STATUS, binary.BigEndian.AppendUint32(nil, status))
	ae.Bytes(ctaTimeout, binary.BigEndian.AppendUint32(nil, 600))
	if f.zone {
		ae.Bytes(nl.CTA_ZONE, binary.BigEndian.AppendUint16(nil, 7))
	}
	m, err := message(msgMake, netlink.Request|netlink.Create|netlink.Excl|netlink.Acknowledge, model.FamilyOf(f.dest.Addr()), ae)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (n *namespace) create(t testing.TB, count int, flowOf func(i int) flow) {
	t.Helper()
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: n.fd(), MessageBufferSize: bufferSize})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for i := 0; i < count; {
		var batch []netlink.Message
		for ; i < count && len(batch) < chunk; i++ {
			f := flowOf(i)
			batch = append(batch, f.creation(t))
		}
		if _, err := c.SendMessages(batch); err != nil {
			t.Fatal(err)
		}
		for range batch {
			if _, err := c.Receive(); err != nil {
				t.Fatalf("flow %d: %v", i, err)
			}
		}
	}
}

// list returns the flows that the kernel tracks, as another program sees them: "udp
// 203.0.113.9:40000 172.30.0.10:53 10.0.0.2:8053", with the zone where there is one.
func (n *namespace) list(t testing.TB) []string {
	t.Helper()
	c, err := timo.Dial(&netlink.Config{NetNS: n.fd()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	flows, err := c.Dump(nil)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, f := range flows {
		from, answers := f.TupleOrig, f.TupleReply
		text := fmt.Sprintf("%v %v %v %v", model.Protocol(from.Proto.Protocol),
			netip.AddrPortFrom(from.IP.SourceAddress, from.Proto.SourcePort),
			netip.AddrPortFrom(from.IP.DestinationAddress, from.Proto.DestinationPort),
			netip.AddrPortFrom(answers.IP.SourceAddress, answers.Proto.SourcePort))
		if f.Zone != 0 {
			text += fmt.Sprintf(" zone %d", f.Zone)
		}
		list = append(list, text)
	}
	slices.Sort(list)
	return list
}

func (n *namespace) open(t testing.TB) *table {
	t.Helper()
	table, err := openTable(thisKernel(n.fd()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(table.close)
	return table
}

// servingPass is a pass with a cluster IP's port 53, which has the endpoint 10.0.0.2:8053, and its IPv6 twin.
func servingPass(f model.Family) *pass {
	vip, pod := "172.30.0.10", "10.0.0.2:8053"
	if f == model.IPv6 {
		vip, pod = "fd00:172:30::10", "[fd00:10::2]:8053"
	}
	return passOf(model.UDP, vip, pod)
}

// passOf is a pass over flows of UDP with a frontend, of port 53, that has one endpoint.
func passOf(protocol model.Protocol, vip, endpoint string) *pass {
	f := &family{applied: nothing, frontends: owners{}}
	f.frontends.add(&model.ServicePort{
		Name:      model.ServicePortName{Protocol: protocol},
		Frontends: []model.Frontend{{VIP: model.VIP{Addr: netip.MustParseAddr(vip), Protocol: protocol, Port: 53}}},
		Endpoints: []model.Endpoint{{Addr: netip.MustParseAddrPort(endpoint)}},
	})
	return &pass{family: f, now: time.Now(), work: work{udp: true}}
}

// sweep does what the pass is for, as a Reconciler.
func (t *table) sweepFor(f model.Family, p *pass) (seen, deleted int, err error) {
	return t.sweep(p.queries(f), p.stale)
}

func TestSweepDeletesWhatIsStaleAndNothingElse(t *testing.T) {
	zone := parse(t, "udp 172.30.0.10:53 from 10.0.0.3:8053")
	zone.zone = true
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
	for _, tt := range []struct {
		name         string
		ask          func(query) (netlink.Message, error)
		seen4, seen6 int
	}{
		{"by protocol", query.message, 8, 4},
		// As before Linux 5.8.
		{"by a kernel that does not filter", func(q query) (netlink.Message, error) {
			return message(msgGet, netlink.Request|netlink.Dump, q.family, netlink.NewAttributeEncoder())
		}, 10, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNamespace(t)
			n.create(t, 1, func(int) flow { return zone })
			numbered := func(texts []string, first int) func(i int) flow {
				return func(i int) flow {
					f := parse(t, texts[i])
					f.source = netip.AddrPortFrom(f.source.Addr(), uint16(first+i))
					f.replyDest = f.source
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
			for _, f := range model.Families {
				table := n.open(t)
				table.ask = tt.ask
				wantSeen, wantDeleted := tt.seen4, len(go4)
				if f == model.IPv6 {
					wantSeen, wantDeleted = tt.seen6, len(go6)
				}
				seen, deleted, err := table.sweepFor(f, servingPass(f))
				if err != nil {
					t.Fatal(err)
				}
				if seen != wantSeen || deleted != wantDeleted {
					t.Errorf("%v: saw %d flows and deleted %d, want %d and %d", f, seen, deleted, wantSeen, wantDeleted)
				}
			}
			if diff := cmp.Diff(want, n.list(t)); diff != "" {
				t.Errorf("what is left (-want +got):\n%s", diff)
			}
		})
	}
}

// Between the dump and the deletion a flow may end, and another of the same sender begin.
// The kernel lists only what is neither translated nor answered, if it can; that goes, if it is to a
// frontend.
func TestSweepOfConnectionsFromBeforeTheRules(t *testing.T) {
	n := newNamespace(t)
	flows := []string{
		"tcp 172.30.0.10:53 unanswered",
		"tcp 172.30.0.10:54 unanswered",
		"tcp 172.30.0.11:53",
		"tcp 172.30.0.12:53 from 10.0.0.3:8053 unanswered",
		"udp 172.30.0.10:53 unanswered",
		"udp 172.30.0.11:53 unanswered",
	}
	n.create(t, len(flows), func(i int) flow { return parse(t, flows[i]) })
	before := n.list(t)
	p := &pass{family: &family{applied: nothing}, work: work{early: true}, all: owners{}}
	for _, to := range []struct {
		vip      string
		protocol model.Protocol
	}{{"172.30.0.10", model.TCP}, {"172.30.0.11", model.TCP}, {"172.30.0.12", model.TCP}, {"172.30.0.10", model.UDP}} {
		p.all.addAll(passOf(to.protocol, to.vip, "10.0.0.2:8053").frontends)
	}
	seen, deleted, err := n.open(t).sweepFor(model.IPv4, p)
	if err != nil || deleted != 2 {
		t.Fatalf("%d deleted, %v; want 2", deleted, err)
	}
	if seen != 4 && seen != len(flows) { // before Linux 5.14
		t.Errorf("saw %d flows, want 4 or %d", seen, len(flows))
	}
	t.Logf("saw %d of %d flows", seen, len(flows))
	want := slices.DeleteFunc(before, func(f string) bool { return strings.Contains(f, " 172.30.0.10:53 ") })
	if diff := cmp.Diff(want, n.list(t)); diff != "" {
		t.Errorf("what stays (-want +got):\n%s", diff)
	}
}

func TestANewerFlowIsNotHit(t *testing.T) {
	n := newNamespace(t)
	stale := parse(t, "udp 172.30.0.10:53 from 10.0.0.3:8053")
	n.create(t, 1, func(int) flow { return stale })
	table := n.open(t)
	var found []flow
	for f, err := range table.flows(query{family: model.IPv4, protocol: model.UDP}) {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, f)
	}
	if len(found) != 1 || found[0].id == 0 {
		t.Fatalf("found %+v, want one flow with an id", found)
	}
	if deleted, err := table.delete(found); deleted != 1 || err != nil {
		t.Fatalf("%d deleted, %v, want 1", deleted, err)
	}
	if deleted, err := table.delete(found); deleted != 0 || err != nil {
		t.Errorf("%d deleted, %v, want none, and no error", deleted, err)
	}
	n.create(t, 1, func(int) flow { return parse(t, "udp 172.30.0.10:53 from 10.0.0.2:8053") })
	if deleted, err := table.delete(found); deleted != 0 || err != nil {
		t.Errorf("%d deleted, %v, want none: it has another endpoint", deleted, err)
	}
	n.create(t, 1, func(int) flow { return parse(t, "udp 172.30.0.11:53 from 10.0.0.3:8053") })
	found[0].id++
	if deleted, err := table.delete(found); deleted != 0 || err != nil {
		t.Errorf("%d deleted, %v, want none: it has another id", deleted, err)
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
	n.create(t, 1, func(int) flow { return good })
	table := n.open(t)
	var flows []flow
	for f, err := range table.flows(query{family: model.IPv4, protocol: model.UDP}) {
		if err != nil {
			t.Fatal(err)
		}
		bad.id = f.id
		bad.replyDest = netip.AddrPort{} // nothing the kernel could look for
		flows = []flow{bad, f}
	}
	deleted, err := table.delete(flows)
	if deleted != 1 || !errors.Is(err, errRefused) {
		t.Errorf("%d deleted, error %v, want 1 and %v", deleted, err, errRefused)
	}
	if got := n.list(t); len(got) > 0 {
		t.Errorf("left: %q", got)
	}
}

func TestASweepEndsWithItsContext(t *testing.T) {
	n := newNamespace(t)
	n.create(t, 1000, func(i int) flow {
		f := parse(t, "udp 172.30.0.10:53 from 10.0.0.3:8053")
		f.source = netip.AddrPortFrom(f.source.Addr(), uint16(i+1))
		f.replyDest = f.source
		return f
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	k := kernel{dial: thisKernel(n.fd())}
	defer k.close()
	p := servingPass(model.IPv4)
	if _, _, err := k.sweep(ctx, p.queries(model.IPv4), p.stale); err == nil {
		t.Error("no error, want one")
	}
	if _, deleted, err := k.sweep(t.Context(), p.queries(model.IPv4), p.stale); deleted == 0 || err != nil {
		t.Errorf("%d deleted by the next, %v", deleted, err)
	}
}

// A connection lasts from sweep to sweep, because its end makes others' batches wait.
func TestSweepsShareTheirConnections(t *testing.T) {
	n := newNamespace(t)
	k := kernel{dial: thisKernel(n.fd())}
	defer k.close()
	p := servingPass(model.IPv4)
	var first *table
	for range 2 {
		n.fill(t, 100)
		if _, deleted, err := k.sweep(t.Context(), p.queries(model.IPv4), p.stale); err != nil || deleted != 100 {
			t.Fatalf("%d flows deleted, %v; want 100", deleted, err)
		}
		if first == nil {
			first = k.table
		}
	}
	if k.table != first {
		t.Error("the second sweep had other connections than the first")
	}

	n.fill(t, 100)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := k.sweep(ctx, p.queries(model.IPv4), p.stale); err == nil {
		t.Error("a sweep succeeded after the end of its context")
	}
	if k.table != nil {
		t.Error("connections of a sweep that failed are still open: the rest of a list may be in them")
	}
	if _, _, err := k.sweep(t.Context(), p.queries(model.IPv4), p.stale); err != nil {
		t.Errorf("after a sweep that failed: %v", err)
	}
}

// A Reconciler as it is used, against a kernel.
func TestAReconcilerReachesTheKernel(t *testing.T) {
	n := newNamespace(t)
	n.create(t, 1, func(int) flow { return parse(t, "udp 172.30.0.10:53 from 10.0.0.3:8053") })
	n.create(t, 1, func(int) flow { return parse(t, "udp 172.30.0.11:53 from 10.0.0.3:8053") })
	passes := make(chan Pass, 10)
	r := New(Options{Log: slog.New(slog.DiscardHandler), NetNS: n.fd(), Report: func(p Pass) { passes <- p }})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); r.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	r.Done(reconcile.Round{Snapshot: newCluster(append(dnsSlices(nil, 2), dns())...).Snapshot()})
	for range model.Families {
		select {
		case p := <-passes:
			if p.Err != nil {
				t.Error(p.Err)
			}
		case <-time.After(2 * patience):
			t.Fatal("no pass")
		}
	}
	if got := n.list(t); len(got) != 0 {
		t.Errorf("left: %q", got) // the other one was in the ServiceCIDR, and nobody's
	}
}

// The context ends while the last flow of a list is judged: no later sweep has the deadline that this sets.
func TestTheEndOfAContextStaysInItsSweep(t *testing.T) {
	n := newNamespace(t)
	k := kernel{dial: thisKernel(n.fd())}
	defer k.close()
	p := servingPass(model.IPv4)
	n.fill(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	_, _, err := k.sweep(ctx, p.queries(model.IPv4), func(*flow) bool {
		cancel()
		time.Sleep(10 * time.Millisecond) // the deadline is set meanwhile
		return false
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the sweep ended with %v", err)
	}
	if _, deleted, err := k.sweep(t.Context(), p.queries(model.IPv4), p.stale); deleted != 1 || err != nil {
		t.Errorf("%d deleted by the next sweep, %v", deleted, err)
	}
}
