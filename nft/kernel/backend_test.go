package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
	"github.com/vmapd/vmapd/nft/compile"
)

// exampleBuilder has one Service of each kind, in both families. Pods 10.0.0.0/8, cluster
// IPs 172.30.0.0/16, nodes 192.168.0.0/24, external IPs 192.168.99.0/24.
func exampleBuilder() *model.Builder {
	b := modeltest.Builder(model.Config{
		NodeName:          modeltest.NodeName,
		NodePortAddresses: model.NodePortAddresses{Primary: true},
		ConnectionRetry:   true,
		LocalPods:         model.LocalPods{ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00:10::/41")}},
	},
		modeltest.OurNode(), modeltest.NewServiceCIDR("kubernetes", "172.30.0.0/16", "255.255.0.0/16", "fd00:172:30::/112"),
		modeltest.NewService("default/web").On("172.30.0.41", "fd00:172:30::41").External("192.168.99.11", "fd00:192:168:99::11").
			TCP("http", 80).NodePort(30080).UDP("dns", 53).Port(model.Port{Name: "sctp", Protocol: "SCTP", Port: 99}),
		modeltest.NewService("default/empty").On("172.30.0.42").TCP("", 80))
	for _, f := range model.Families {
		b.SetEndpointSlice(exampleSlice(f.String(), 3))
	}
	return b
}

// exampleSlice has so many endpoints of the Service web, the first two of them on this node.
func exampleSlice(family string, n int) model.EndpointSlice {
	s := modeltest.NewSlice("default/web-"+family, "web").TCP("http", 8080).UDP("dns", 5353).Port("sctp", "SCTP", 99)
	addr := netip.MustParseAddr("10.0.0.2")
	if family == "IPv6" {
		s, addr = s.IPv6(), netip.MustParseAddr("fd00:10::2")
	}
	for i := range n {
		node := modeltest.NodeName
		if i >= 2 {
			node = "node-2"
		}
		s = s.Endpoint(addr.String(), modeltest.OnNode(node))
		addr = addr.Next()
	}
	return s.EndpointSlice
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

func apply(t testing.TB, b *Backend, s *model.Snapshot) {
	t.Helper()
	if err := b.Apply(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// remove deletes the tables.
func remove(b *Backend) error {
	var errs []error
	for _, st := range b.families {
		st.known, st.owned = false, false
		st.update(func(to *shared) { to.ruleset = nil })
		m := b.conn.newBatch(st.family, nft.TableName)
		m.deleteTable()
		switch err := b.conn.commit(&m); {
		case errors.Is(err, unix.EPERM):
			errs = append(errs, ErrOwned)
		case !errors.Is(err, unix.ENOENT):
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// retrying are the options of a Backend with nothing else wanted.
var retrying = compile.Options{Timeouts: nft.RetryTimeouts(nil)}

func text(s *model.Snapshot) string {
	return retrying.Compile(nil, s.Family(model.IPv4)).Table().String() + retrying.Compile(nil, s.Family(model.IPv6)).Table().String()
}

func TestListingEqualsThatOfTheRenderedText(t *testing.T) {
	for _, o := range []compile.Options{retrying, {Counters: true, Timeouts: retrying.Timeouts}} {
		byNetlink, byText := newNetNS(t), newNetNS(t)
		s := exampleBuilder().Snapshot()
		apply(t, openAs(t, Options{NetNS: byNetlink.fd(), Counters: o.Counters}), s)
		for _, f := range model.Families {
			byText.nft(t, o.Compile(nil, s.Family(f)).Table().String(), "-f", "-")
		}
		testaid.Equal(t, fmt.Sprintf("with counters %v, the listing after nft -f, and after netlink", o.Counters),
			objectsIn(byText.nft(t, "", "list", "ruleset")), objectsIn(withoutOwner(byNetlink.nft(t, "", "list", "ruleset"))))
	}
}

// objectsIn returns the objects of a listing, which has them in the order in which they were made.
func objectsIn(listing string) []string {
	return slices.Sorted(slices.Values(strings.Split(strings.ReplaceAll(listing, "\n}\n", "\n\n}\n\n"), "\n\n")))
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
	if got := first.Stats(model.IPv4); got.Batches != 3 || got.Operations < got.Batches {
		t.Errorf("the statistics of three batches: %+v", got)
	}
	before := n.nft(t, "", "-a", "list", "ruleset")

	second := open(t, n)
	apply(t, second, builder.Snapshot())
	if got := second.Stats(model.IPv4).Operations + second.Stats(model.IPv6).Operations; got != 0 {
		t.Errorf("%d operations after a restart with the same input, want none", got)
	}
	testaid.Equal(t, "the listing after a restart", withoutOwner(before), withoutOwner(n.nft(t, "", "-a", "list", "ruleset")))
}

// A table that is claimed is read ahead, and not again. One without an owner may change until it is applied to.
func TestReadAhead(t *testing.T) {
	n, builder := newNetNS(t), exampleBuilder()
	first := open(t, n)
	apply(t, first, builder.Snapshot())
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := open(t, n)
	second.ReadAhead()
	for _, st := range second.families {
		if (st.ahead != nil) != second.Owned() {
			t.Errorf("the %v table is owned: %t; it was read: %t", st.family, second.Owned(), st.ahead != nil)
		}
	}
	builder.SetEndpointSlice(exampleSlice("IPv4", 4))
	apply(t, second, builder.Snapshot())
	if second.ReadAhead(); second.families[0].ahead != nil {
		t.Error("the table is read after Apply")
	}
	mustMatch(t, n, builder.Snapshot())
	if got := second.Stats(model.IPv6).Operations; got != 0 {
		t.Errorf("%d operations for a family that did not change", got)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	third := openUnowned(t, n)
	third.ReadAhead()
	n.nft(t, "flush map ip vmapd service-ips\n", "-f", "-")
	apply(t, third, builder.Snapshot())
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
		table, err := c.readTable(f)
		if err != nil {
			t.Fatal(err)
		}
		if table == nil {
			t.Fatalf("no %v table", f)
		}
		changes := batch.DiffTable(table, retrying.Adopt(table, nil, s.Family(f)))
		changes.DeleteChains = nil // chains no longer used are left until the next start
		if !changes.Empty() {
			t.Errorf("the kernel's %v table still lacks:\n%.2000s", f, changes)
		}
	}
}

func TestRemoveLeavesNothing(t *testing.T) {
	n := newNetNS(t)
	b := open(t, n)
	s := exampleBuilder().Snapshot()
	apply(t, b, s)
	for range 2 { // also when there is nothing to remove
		if err := remove(b); err != nil {
			t.Fatal(err)
		}
		if listing := n.nft(t, "", "list", "ruleset"); listing != "" {
			t.Errorf("left behind:\n%s", listing)
		}
	}
	apply(t, b, s)
	mustMatch(t, n, s)
}

func TestEveryElementOfALargeSetArrives(t *testing.T) {
	n := newNetNS(t)
	builder := model.NewBuilder(model.Config{})
	modeltest.Feed(builder, modeltest.Cluster(10_000, 5))
	apply(t, open(t, n), builder.Snapshot())
	mustMatch(t, n, builder.Snapshot())
}
