package conntrack

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	timo "github.com/ti-mo/conntrack"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// fast is a world whose node has the fast path, and another table with a chain that counts what is
// forwarded.
type fast struct{ *tracked }

func newFast(t *testing.T, pods int) fast {
	t.Helper()
	vmapdtest.NeedFastPath(t)
	vmapdtest.NeedNFT(t)
	var backend *kernel.Backend
	tr := newTracked(t, func(t *testing.T, node *lab.Namespace) reconcile.Backend {
		t.Helper()
		backend = vmapdtest.OpenKernel(t, node, kernel.Options{FastPath: true})
		return backend
	}, pods, 8080)
	vmapdtest.FollowDevices(t, tr.Node, func(names []string) {
		backend.SetDevices(names)
		tr.set()
	})
	f := fast{tr}
	f.nft(t, "table inet watch { chain forward { type filter hook forward priority 0; counter; }; }")
	return f
}

func (f fast) nft(t *testing.T, args ...string) string {
	t.Helper()
	return vmapdtest.Feed(t, f.Node, "", "nft", args...)
}

var packetsOfCounter = regexp.MustCompile(`counter packets (\d+)`)

// met returns the number of packets that have met the other table's chain.
func (f fast) met(t *testing.T) int {
	t.Helper()
	found := packetsOfCounter.FindStringSubmatch(f.nft(t, "list", "chain", "inet", "watch", "forward"))
	if found == nil {
		t.Fatal("no counter")
	}
	n, _ := strconv.Atoi(found[1])
	return n
}

// has waits until the flowtables of both families have the node's devices.
func (f fast) has(t *testing.T, devices ...string) {
	t.Helper()
	vmapdtest.WaitUntil(t, fmt.Sprintf("the flowtables have %v", devices), func() bool {
		for _, family := range []string{"ip", "ip6"} {
			listed := f.nft(t, "list", "flowtables", family)
			for _, d := range devices {
				if !regexp.MustCompile(`[ "]` + regexp.QuoteMeta(d) + `[", ]`).MatchString(listed) {
					return false
				}
			}
		}
		return true
	})
}

// tracks returns the packets of the connection to an address, in both directions, as connection
// tracking counts them, and the answering side.
func (f fast) tracks(t *testing.T, to netip.AddrPort) (packets int) {
	t.Helper()
	err := f.Node.Do(func() error {
		c, err := timo.Dial(nil)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		flows, err := c.Dump(nil)
		for _, flow := range flows {
			if flow.TupleOrig.IP.DestinationAddress == to.Addr() && flow.TupleOrig.Proto.DestinationPort == to.Port() {
				packets += int(flow.CountersOrig.Packets + flow.CountersReply.Packets)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return packets
}

// longConnection asks many questions on one connection, and returns how many packets of it met the
// other table's chain, and how many it had.
func (f fast) longConnection(t *testing.T, from *lab.Namespace, network string, to netip.AddrPort,
	questions int,
) (met, all int) {
	t.Helper()
	before := f.met(t)
	c, err := from.Dial(t.Context(), network, to)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for i := range questions {
		if _, err := c.Ask(t.Context()); err != nil {
			t.Fatalf("question %d: %v", i+1, err)
		}
	}
	return f.met(t) - before, f.tracks(t, to)
}

// Of a long connection, under 1 % of the packets meet the chains of others, whoever connects and by
// whatever address. The counters of connection tracking still have all of them.
func TestFastPathCarriesLongConnections(t *testing.T) {
	f := newFast(t, 2)
	f.set(fastService(), modeltest.NewSlice("ns1/web-4", "web").TCP("http", 8080).UDP("dns",
		8080).Local(f.Pods()[0].IP4.String()),
		modeltest.NewSlice("ns1/web-6", "web").IPv6().TCP("http", 8080).UDP("dns", 8080).Local(f.Pods()[0].IP6.String()))
	f.has(t, lab.UplinkName)
	froms := map[string]*lab.Namespace{
		"client": f.Client, "the pod itself": f.Pods()[0].Namespace,
		"another pod": f.Pods()[1].Namespace,
	}
	for name, from := range froms {
		for _, network := range []string{"tcp", "udp"} {
			for _, to := range []string{"172.30.0.41:80", "[fd00:172:30::29]:80"} {
				t.Run(strings.Join([]string{name, network, to}, " "), func(t *testing.T) {
					f.mustBeFast(t, from, network,
						netip.MustParseAddrPort(to))
				})
			}
		}
	}
	t.Run("client tcp node port", func(t *testing.T) {
		f.mustBeFast(t, f.Client, "tcp", netip.AddrPortFrom(netip.MustParseAddr(lab.NodeIP4), 30001))
	})
}

func fastService() modeltest.Service {
	return modeltest.NewService("ns1/web").On("172.30.0.41", "fd00:172:30::29").Typed("NodePort").TCP("http",
		80).NodePort(30001).UDP("dns", 80)
}

func (f fast) mustBeFast(t *testing.T, from *lab.Namespace, network string, to netip.AddrPort) {
	t.Helper()
	if err := f.Node.FlushConntrack(); err != nil {
		t.Fatal(err)
	}
	// One connection with 3,000 packets at least; of it, FastPathAfter go before.
	met, all := f.longConnection(t, from, network, to, 3000)
	t.Logf("%d of %d packets met the other table's chain: %.2f %%", met, all, 100*float64(met)/float64(all))
	if all < 6000 || met*100 >= all || met < nft.FastPathAfter {
		t.Errorf("%d of %d packets met the other table's chain, want from %d to under 1 %% of at least 6000", met, all,
			nft.FastPathAfter)
	}
}

// Connections that another program translates take the usual path, also those to a pod that is an
// endpoint of a Service.
func TestFastPathLeavesOthersAlone(t *testing.T) {
	f := newFast(t, 1)
	f.set(fastService(), modeltest.NewSlice("ns1/web-4", "web").TCP("http", 8080).UDP("dns",
		8080).Ready(f.Pods()[0].IP4.String()))
	f.has(t, lab.UplinkName)
	f.nft(t, fmt.Sprintf(`table ip hostport { chain pre { type nat hook prerouting priority -90;
		ip daddr %s tcp dport 9090 dnat to %s:8080; ip daddr 172.30.0.41 tcp dport 81 dnat to %s:8080; }; }`,
		lab.NodeIP4, f.Pods()[0].IP4, f.Pods()[0].IP4))
	for _, to := range []string{lab.NodeIP4 + ":9090", f.Pods()[0].IP4.String() + ":8080"} {
		met, all := f.longConnection(t, f.Client, "tcp", netip.MustParseAddrPort(to), 300)
		if met < 600 || all > 0 && met < all-1 {
			t.Errorf("%s: %d of %d packets met the other table's chain, want all", to, met, all)
		}
	}
	met, all := f.longConnection(t, f.Client, "tcp", netip.MustParseAddrPort("172.30.0.41:80"), 300)
	if met > all/4 {
		t.Errorf("the Service: %d of %d packets met the other table's chain", met, all)
	}
}

// The device of a pod that starts later is added, and that of one that is gone is removed.
func TestFastPathFollowsTheDevices(t *testing.T) {
	f := newFast(t, 1)
	f.has(t, lab.UplinkName)
	p, err := f.AddPod(t.Context(), "late")
	if err != nil {
		t.Fatal(err)
	}
	f.set(fastService(), modeltest.NewSlice("ns1/web-4", "web").TCP("http", 8080).UDP("dns", 8080).Ready(p.IP4.String()))
	vmapdtest.WaitUntil(t, "a connection to the pod takes the fast path", func() bool {
		met, all := f.longConnection(t, f.Client, "udp", netip.MustParseAddrPort("172.30.0.41:80"), 200)
		return met < all/4
	})
	before := f.nft(t, "list", "flowtables")
	if err := f.RemovePod("late"); err != nil {
		t.Fatal(err)
	}
	vmapdtest.WaitUntil(t, "the device is removed", func() bool {
		return len(f.nft(t, "list",
			"flowtables")) < len(before)
	})
}

// A flow on the fast path ends with its endpoint: a UDP client that never pauses reaches another
// one, and a TCP connection is closed after the Service's grace period.
func TestFastPathEndsWithTheEndpoint(t *testing.T) {
	f := newFast(t, 2)
	slice := func(p *lab.Pod) modeltest.Object {
		return modeltest.NewSlice("ns1/web-4", "web").TCP("http", 8080).UDP("dns", 8080).Ready(p.IP4.String())
	}
	web := fastService().ConnectionGrace("1s")
	f.set(web, slice(f.Pods()[0]))
	f.has(t, lab.UplinkName)
	to := netip.MustParseAddrPort("172.30.0.41:80")
	conns := map[string]*lab.Conn{}
	for _, network := range []string{"tcp", "udp"} {
		c, err := f.Client.Dial(t.Context(), network, to)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		conns[network] = c
		vmapdtest.WaitUntil(t, network+" takes the fast path", func() bool {
			before := f.met(t)
			for range 10 {
				if a, err := c.Ask(t.Context()); err != nil || a.Pod != f.Pods()[0].Name() {
					t.Fatalf("%s: %+v, %v", network, a, err)
				}
			}
			return f.met(t) == before
		})
	}
	f.set(slice(f.Pods()[1]))
	vmapdtest.WaitUntil(t, "UDP reaches the other pod", func() bool {
		a, err := conns["udp"].Ask(t.Context())
		return err == nil && a.Pod == f.Pods()[1].Name()
	})
	began := time.Now()
	for {
		if _, err := conns["tcp"].Ask(t.Context()); err != nil {
			if kind := lab.FailureOf(err); kind != lab.Reset {
				t.Errorf("want a reset, got %v", err)
			}
			break
		}
		if time.Since(began) > vmapdtest.Patience {
			t.Fatal("the TCP connection to the removed endpoint goes on")
		}
	}
}

// A start finds the table of the one before, and writes nothing.
func TestFastPathIsReadBack(t *testing.T) {
	f := newFast(t, 1)
	f.set(fastService(), modeltest.NewSlice("ns1/web-4", "web").TCP("http", 8080).UDP("dns",
		8080).Ready(f.Pods()[0].IP4.String()))
	f.has(t, lab.UplinkName)
	snapshot, _ := f.state.Snapshot()
	f.stop()
	for _, fastPath := range []bool{true, false} {
		b := vmapdtest.OpenKernel(t, f.Node, kernel.Options{FastPath: fastPath})
		if err := b.Apply(t.Context(), snapshot); err != nil {
			t.Fatal(err)
		}
		for _, family := range model.Families {
			if n := b.Stats(family).Operations; (n == 0) != fastPath {
				t.Errorf("fast path %v: %v: %d operations", fastPath, family, n)
			}
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if listed := f.nft(t, "list", "ruleset"); strings.Contains(listed, nft.FastPath) {
		t.Errorf("without the fast path, there is\n%s", listed)
	}
}
