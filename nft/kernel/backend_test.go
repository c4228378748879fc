package kernel

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
	"github.com/vmapd/vmapd/nft/compile"
)

// exampleBuilder has one Service of each kind, in both families. Pods 10.0.0.0/8, cluster
// IPs 172.30.0.0/16, nodes 192.168.0.0/24, external IPs 192.168.99.0/24.
func exampleBuilder() *model.Builder {
	b := model.NewBuilder(model.Config{
		NodeName:          "node-1",
		NodePortAddresses: model.NodePortAddresses{Primary: true},
		LocalPods:         model.LocalPods{ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00:10::/41")}},
	})
	b.SetNode(model.Node{Name: "node-1", Addresses: []string{"192.168.0.2", "fd00:192:168::2"}})
	b.SetServiceCIDR(model.ServiceCIDR{Name: "kubernetes", CIDRs: []string{"172.30.0.0/16", "255.255.0.0/16", "fd00:172:30::/112"}})
	b.SetService(model.Service{
		NamespacedName: model.NamespacedName{Namespace: "default", Name: "web"},
		ClusterIPs:     []string{"172.30.0.41", "fd00:172:30::41"},
		ExternalIPs:    []string{"192.168.99.11", "fd00:192:168:99::11"},
		Ports: []model.Port{
			{Name: "http", Port: 80, NodePort: 30080},
			{Name: "dns", Protocol: "UDP", Port: 53},
			{Name: "sctp", Protocol: "SCTP", Port: 99},
		},
	})
	b.SetService(model.Service{
		NamespacedName: model.NamespacedName{Namespace: "default", Name: "empty"},
		ClusterIPs:     []string{"172.30.0.42"},
		Ports:          []model.Port{{Port: 80}},
	})
	for _, f := range []string{"IPv4", "IPv6"} {
		b.SetEndpointSlice(exampleSlice(f, 3))
	}
	return b
}

func exampleSlice(family string, n int) model.EndpointSlice {
	addr := netip.MustParseAddr("10.0.0.2")
	if family == "IPv6" {
		addr = netip.MustParseAddr("fd00:10::2")
	}
	s := model.EndpointSlice{
		NamespacedName: model.NamespacedName{Namespace: "default", Name: "web-" + family},
		Labels:         map[string]string{model.LabelServiceName: "web"},
		AddressType:    family,
		Ports: []model.SlicePort{
			{Name: new("http"), Port: new(int32(8080))},
			{Name: new("dns"), Protocol: new("UDP"), Port: new(int32(5353))},
			{Name: new("sctp"), Protocol: new("SCTP"), Port: new(int32(99))},
		},
	}
	for i := range n {
		e := model.SliceEndpoint{Addresses: []string{addr.String()}, NodeName: "node-2"}
		if i < 2 {
			e.NodeName = "node-1"
		}
		s.Endpoints = append(s.Endpoints, e)
		addr = addr.Next()
	}
	return s
}

func open(t testing.TB, n netns) *Backend {
	t.Helper()
	return openAs(t, Options{NetNS: n.fd()})
}

func openAs(t testing.TB, o Options) *Backend {
	t.Helper()
	b, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// apply applies a snapshot, and deletes the clients of removed endpoints.
func apply(t testing.TB, b *Backend, s *model.Snapshot) {
	t.Helper()
	if err := b.Apply(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	purge(t, b)
}

func purge(t testing.TB, b *Backend) {
	t.Helper()
	if err := b.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func text(s *model.Snapshot) string {
	return compile.Options{}.Compile(nil, s.Family(model.IPv4)).Table().String() + compile.Options{}.Compile(nil, s.Family(model.IPv6)).Table().String()
}

func TestListingEqualsThatOfTheRenderedText(t *testing.T) {
	byNetlink, byText := newNetNS(t), newNetNS(t)
	s := exampleBuilder().Snapshot()
	apply(t, open(t, byNetlink), s)
	byText.nft(t, text(s), "-f", "-")
	want := byText.nft(t, "", "list", "ruleset")
	got := withoutOwner(byNetlink.nft(t, "", "list", "ruleset"))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("listing after nft -f (-), after netlink (+):\n%s", diff)
	}
}

func TestListingLoadsAgainAsItIs(t *testing.T) {
	made, loaded := newNetNS(t), newNetNS(t)
	apply(t, open(t, made), exampleBuilder().Snapshot())
	want := withoutOwner(made.nft(t, "", "list", "ruleset"))
	loaded.nft(t, want, "-f", "-")
	if diff := cmp.Diff(want, loaded.nft(t, "", "list", "ruleset")); diff != "" {
		t.Errorf("listing (-), listing after loading it (+):\n%s", diff)
	}
	// Not only the text: also the rules behind it are those we would write.
	b := openUnowned(t, loaded)
	s := exampleBuilder().Snapshot()
	apply(t, b, s)
	if got := b.Stats(model.IPv4).Operations + b.Stats(model.IPv6).Operations; got != 0 {
		t.Errorf("%d operations after loading the listing, want none", got)
	}
}

func TestRestartWritesNothing(t *testing.T) {
	n := newNetNS(t)
	builder := exampleBuilder()
	first := open(t, n)
	apply(t, first, builder.Snapshot())
	// Slots as no fresh compilation would choose them.
	builder.SetEndpointSlice(exampleSlice("IPv4", 4))
	apply(t, first, builder.Snapshot())
	moved := exampleSlice("IPv4", 3)
	moved.Endpoints[0].Addresses[0] = "10.0.0.9"
	builder.SetEndpointSlice(moved)
	apply(t, first, builder.Snapshot())
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	before := n.nft(t, "", "-a", "list", "ruleset")

	second := open(t, n)
	apply(t, second, builder.Snapshot())
	if got := second.Stats(model.IPv4).Operations + second.Stats(model.IPv6).Operations; got != 0 {
		t.Errorf("%d operations after a restart with the same input, want none", got)
	}
	if diff := cmp.Diff(withoutOwner(before), withoutOwner(n.nft(t, "", "-a", "list", "ruleset"))); diff != "" {
		t.Errorf("the restart changed something:\n%s", diff)
	}
}

func TestOneEndpointMoreIsAHandfulOfOperations(t *testing.T) {
	n := newNetNS(t)
	b := open(t, n)
	builder := exampleBuilder()
	apply(t, b, builder.Snapshot())
	// Three ports with two addresses and one node port: each gets a slot. Behind the fourth,
	// each exchanges the element that says about how many there are, for two more chains.
	const frontends, chains = 3*2 + 1, 2
	for _, tt := range []struct{ endpoints, want int }{{4, frontends}, {5, 3*frontends + chains}} {
		before := b.Stats(model.IPv4)
		builder.SetEndpointSlice(exampleSlice("IPv4", tt.endpoints))
		apply(t, b, builder.Snapshot())
		after := b.Stats(model.IPv4)
		if got := after.Operations - before.Operations; got != uint64(tt.want) {
			t.Errorf("%d endpoints: %d operations, want %d", tt.endpoints, got, tt.want)
		}
		if got := after.Batches - before.Batches; got != 1 {
			t.Errorf("%d endpoints: %d batches, want 1", tt.endpoints, got)
		}
	}
	mustMatch(t, n, builder.Snapshot())
}

// mustMatch reads the kernel's tables with a new connection and compares.
func mustMatch(t testing.TB, n netns, s *model.Snapshot) {
	t.Helper()
	mustMatchIn(t, thisKernel(n.fd()), s)
}

func mustMatchIn(t testing.TB, kernel dialer, s *model.Snapshot) {
	t.Helper()
	c, err := kernel.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.close() }()
	for _, f := range model.Families {
		table, err := c.readTable(f, compile.Options{}.Compile(nil, s.Family(f)))
		if err != nil {
			t.Fatal(err)
		}
		if table == nil {
			t.Fatalf("no %v table", f)
		}
		changes := batch.DiffTable(table, compile.Options{}.Repair(table, nil, s.Family(f)))
		changes.DeleteChains = nil // chains no longer used are left until the next start
		if !changes.Empty() {
			t.Errorf("the kernel's %v table still lacks:\n%.2000s", f, changes)
		}
	}
}

func TestWhatOthersChangeIsRepairedOnResync(t *testing.T) {
	n := newNetNS(t)
	s := exampleBuilder().Snapshot()
	// Loaded as text, the table has no owner, so others can write to it.
	n.nft(t, text(s), "-f", "-")
	n.nft(t, "", "add", "rule", "ip", "vmapd", "services", "drop")
	n.nft(t, "", "add", "chain", "ip", "vmapd", "strange")
	n.nft(t, "", "add", "set", "ip", "vmapd", "strange-set", "{ type mark; }")
	n.nft(t, "", "delete", "element", "ip", "vmapd", "cluster-ips", "{ 172.30.0.41 }")
	n.nft(t, "", "add", "element", "ip", "vmapd", "cluster-ips", "{ 172.30.0.77 }")
	n.nft(t, "", "delete", "table", "ip6", "vmapd")
	apply(t, open(t, n), s)
	mustMatch(t, n, s)
	for _, gone := range []string{"strange", "172.30.0.77", "drop\n\t\tdrop"} {
		if listing := n.nft(t, "", "list", "ruleset"); strings.Contains(listing, gone) {
			t.Errorf("%q is still there:\n%s", gone, listing)
		}
	}
}

func TestAnotherLayoutIsReplaced(t *testing.T) {
	n := newNetNS(t)
	n.nft(t, "table ip vmapd { set cluster-ips { type mark; elements = { 7 }; }\nchain old { accept; }\n}", "-f", "-")
	s := exampleBuilder().Snapshot()
	apply(t, open(t, n), s)
	mustMatch(t, n, s)
}

func TestOthersCannotTouchAnOwnedTable(t *testing.T) {
	n := newNetNS(t)
	b := open(t, n)
	if !b.Owned() {
		t.Skip("this kernel lacks table flags owner and persist (Linux 6.9)")
	}
	s := exampleBuilder().Snapshot()
	apply(t, b, s)
	n.nft(t, "", "flush", "ruleset")
	if out, err := n.tryNFT("", "delete", "table", "ip", "vmapd"); err == nil {
		t.Errorf("nft delete table succeeded: %s", out)
	}
	mustMatch(t, n, s)

	// A second instance waits until the first has ended.
	second := open(t, n)
	if err := second.Apply(t.Context(), s); !errors.Is(err, ErrOwned) {
		t.Errorf("a second instance got %v, want ErrOwned", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	apply(t, second, s)
	if got := second.Stats(model.IPv4).Operations; got != 0 {
		t.Errorf("taking over cost %d operations, want none", got)
	}
}

func TestRemoveLeavesNothing(t *testing.T) {
	n := newNetNS(t)
	b := open(t, n)
	s := exampleBuilder().Snapshot()
	apply(t, b, s)
	for range 2 { // also when there is nothing to remove
		if err := b.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		if listing := n.nft(t, "", "list", "ruleset"); listing != "" {
			t.Errorf("left behind:\n%s", listing)
		}
	}
	apply(t, b, s)
	mustMatch(t, n, s)
}

func TestOneRefusedServicePortDoesNotStopTheOthers(t *testing.T) {
	n := newNetNS(t)
	b := open(t, n)
	s := exampleBuilder().Snapshot().Family(model.IPv4)
	want := compile.Options{}.Compile(nil, s)
	changes := batch.DiffTable(nil, want)
	broken := model.ServicePortName{NamespacedName: model.NamespacedName{Namespace: "default", Name: "web"}, Port: "dns", Protocol: model.UDP}
	for _, list := range changes.Add {
		for i, op := range list.Ops {
			if op.Port != nil && op.Port.Name == broken && list.Set == nft.Endpoints {
				list.Ops[i].Key += "zzzz" // longer than the map's keys: the kernel says no
			}
		}
	}
	var st *familyState
	for _, one := range b.families {
		if one.family == model.IPv4 {
			st = one
		}
	}
	_, err := b.send(st, changes)
	if err == nil || !strings.Contains(err.Error(), "Service default/web:dns") {
		t.Fatalf("got error %v, want one that names Service default/web:dns", err)
	}
	if _, ports := model.Failures(err); !model.IsProgrammed(err) || !maps.Equal(ports[model.IPv4], map[model.ServicePortName]bool{broken: true}) {
		t.Errorf("the error is about %v, want %v alone: %v", ports, broken, err)
	}
	listing := n.nft(t, "", "list", "map", "ip", "vmapd", "service-ips")
	for _, there := range []string{"172.30.0.41 . tcp . 80", "172.30.0.42 . tcp . 80", "172.30.0.41 . sctp . 99"} {
		if !strings.Contains(listing, there) {
			t.Errorf("%s is missing:\n%s", there, listing)
		}
	}
	if strings.Contains(listing, "udp") {
		t.Errorf("the refused port is there:\n%s", listing)
	}
	// The cause is gone: the next Apply brings what was left out.
	whole := exampleBuilder().Snapshot()
	apply(t, b, whole)
	mustMatch(t, n, whole)
}

func TestAFailedBatchKeepsTheOldRules(t *testing.T) {
	n := newNetNS(t)
	b := open(t, n)
	s := exampleBuilder().Snapshot()
	apply(t, b, s)
	before := n.nft(t, "", "list", "ruleset")
	bad := &batch.Batch{Family: model.IPv4, Add: []batch.SetOps{
		{Set: nft.ClusterIPs, Ops: []nft.ElementOp{{Element: nft.Element{Key: "\x01\x02\x03\x04"}}}},
		{Set: nft.ServiceIPs, Ops: []nft.ElementOp{{Element: nft.Element{
			Key: "\x01\x02\x03\x04\x06\x00\x00\x00\x00\x50\x00\x00", Verdict: nft.Verdict{Kind: nft.Goto, Chain: "missing"},
		}}}},
	}}
	err := b.conn.commitPiece(bad, 0, elementsPerMessage)
	var refused *BatchError
	if !errors.As(err, &refused) || !strings.Contains(refused.Step, "1.2.3.4 . tcp . 80 : goto missing") {
		t.Errorf("got %v, want a BatchError that names the element", err)
	}
	if !isReply(err) {
		t.Errorf("%v counts as a broken connection", err)
	}
	if diff := cmp.Diff(before, n.nft(t, "", "list", "ruleset")); diff != "" {
		t.Errorf("the failed batch changed something:\n%s", diff)
	}
}

func TestEveryElementOfALargeSetArrives(t *testing.T) {
	n := newNetNS(t)
	b := open(t, n)
	builder := model.NewBuilder(model.Config{})
	const services, endpoints = 10_000, 5
	for i := range services {
		name := model.NamespacedName{Namespace: "default", Name: fmt.Sprintf("svc-%d", i)}
		ip := netip.AddrFrom4([4]byte{172, 30, byte(i >> 8), byte(i)})
		builder.SetService(model.Service{NamespacedName: name, ClusterIPs: []string{ip.String()}, Ports: []model.Port{{Port: 80}}})
		s := model.EndpointSlice{
			NamespacedName: name, Labels: map[string]string{model.LabelServiceName: name.Name}, AddressType: "IPv4",
			Ports: []model.SlicePort{{Name: new(""), Port: new(int32(8080))}},
		}
		for j := range endpoints {
			ip := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(j)})
			s.Endpoints = append(s.Endpoints, model.SliceEndpoint{Addresses: []string{ip.String()}, NodeName: "node-2"})
		}
		builder.SetEndpointSlice(s)
	}
	apply(t, b, builder.Snapshot())
	mustMatch(t, n, builder.Snapshot())
}

func TestProbeLeavesNoTrace(t *testing.T) {
	n := newNetNS(t)
	open(t, n)
	if listing := n.nft(t, "", "list", "ruleset"); listing != "" {
		t.Errorf("the probe left:\n%s", listing)
	}
}

func TestABaseChainAtAnotherPriorityIsMadeAgain(t *testing.T) {
	n := newNetNS(t)
	s := exampleBuilder().Snapshot()
	n.nft(t, strings.ReplaceAll(text(s), "priority srcnat", "priority 50"), "-f", "-")
	apply(t, open(t, n), s)
	mustMatch(t, n, s)
	if listing := n.nft(t, "", "list", "chain", "ip", "vmapd", "postrouting"); !strings.Contains(listing, "hook postrouting priority srcnat") {
		t.Errorf("postrouting has not the right priority:\n%s", listing)
	}
}

// Node ports follow the node's addresses as they come and go.
func TestNodePortAddressesFollowTheNode(t *testing.T) {
	n := newNetNS(t)
	b := open(t, n)
	builder := model.NewBuilder(model.Config{NodePortAddresses: model.NodePortAddresses{All: true}})
	has := func(want string) {
		t.Helper()
		apply(t, b, builder.Snapshot())
		mustMatch(t, n, builder.Snapshot())
		if listing := n.nft(t, "", "list", "set", "ip", "vmapd", nft.NodePortIPs); !strings.Contains(listing, want) {
			t.Errorf("want %q in:\n%s", want, listing)
		}
	}
	first, second := netip.MustParseAddr("192.168.0.2"), netip.MustParseAddr("192.168.0.3")
	builder.SetHostAddresses([]netip.Addr{first})
	has("elements = { 192.168.0.2 }")
	builder.SetHostAddresses([]netip.Addr{first, second})
	has("elements = { 192.168.0.2, 192.168.0.3 }")
	builder.SetHostAddresses([]netip.Addr{second})
	has("elements = { 192.168.0.3 }")
}
