package traffic

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/nettest"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// benchBackends are the backends that are compared, and up to how many Services:
// iptables-nft takes some 20 seconds to load 10,000 once, so it is left out there.
var benchBackends = []struct {
	name string
	most int
	open func(log *slog.Logger) (reconcile.Backend, error)
}{
	{"nftables", 10_000, func(log *slog.Logger) (reconcile.Backend, error) { return kernel.Open(kernel.Options{Log: log}) }},
	{"iptables-legacy", 10_000, openVariant("-legacy")},
	{"iptables-nft", 1_000, openVariant("-nft")},
}

func openVariant(variant string) func(*slog.Logger) (reconcile.Backend, error) {
	return func(log *slog.Logger) (reconcile.Backend, error) {
		return host.OpenIPTables(iptables.Options{Comments: true}, log, variant)
	}
}

// benchEndpoints is how many endpoints each Service has.
const benchEndpoints = 10

// benchNode is a node that has a cluster's Services by one of the backends, in a network
// namespace of its own.
type benchNode struct {
	*lab.World
	backend reconcile.Backend
	builder *model.Builder
	middle  int // a Service in the middle of the cluster
	batches int // how many the backend says that it has applied
}

// Write counts the batches in the backend's log.
func (n *benchNode) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("msg=applied")) {
		n.batches++
	}
	return len(line), nil
}

// apply applies what the builder has. To enter the namespace takes some 50 microseconds,
// and netlink sockets are there already; programs are not.
func (n *benchNode) apply(b *testing.B) {
	b.Helper()
	do := n.Node.Do
	if _, ok := n.backend.(*kernel.Backend); ok {
		do = func(fn func() error) error { return fn() }
	}
	err := do(func() error { return n.backend.Apply(b.Context(), n.builder.Snapshot()) })
	switch {
	case err != nil && strings.Contains(err.Error(), "Message too long"):
		b.Skip("needs root outside of a user namespace, for messages longer than net.core.wmem_max:", err)
	case err != nil:
		b.Fatal(err)
	}
}

// forBackends runs a benchmark for each size of cluster and each backend.
func forBackends(b *testing.B, run func(b *testing.B, n *benchNode)) {
	nettest.Need(b)
	for _, services := range []int{1_000, 10_000} {
		for _, backend := range benchBackends {
			if services > backend.most {
				continue
			}
			b.Run(fmt.Sprintf("%dx%d/%s", services, benchEndpoints, backend.name), func(b *testing.B) {
				w, err := lab.New(b.Context(), lab.Config{})
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = w.Close() }()
				n := &benchNode{World: w, builder: model.NewBuilder(model.Config{}), middle: services / 2}
				modeltest.Feed(n.builder, modeltest.Cluster(services, benchEndpoints))
				log := slog.New(slog.NewTextHandler(n, &slog.HandlerOptions{Level: slog.LevelDebug}))
				if err := w.Node.Do(func() (err error) { n.backend, err = backend.open(log); return err }); err != nil {
					b.Skipf("%s does not work here: %v", backend.name, err)
				}
				if c, ok := n.backend.(io.Closer); ok {
					defer func() { _ = c.Close() }()
				}
				n.apply(b)
				run(b, n)
			})
		}
	}
}

// BenchmarkRound goes from a changed EndpointSlice to the end of Apply: one endpoint of one
// Service is replaced by another.
func BenchmarkRound(b *testing.B) {
	forBackends(b, func(b *testing.B, n *benchNode) {
		var versions [2]modeltest.Slice
		for i := range versions {
			versions[i] = modeltest.ClusterSlice(n.middle, benchEndpoints, 0)
		}
		versions[1].Endpoints[0].Addresses = []string{"10.127.0.2"} // which no other Service has
		before, rounds := n.batches, 0
		for b.Loop() {
			rounds++
			versions[rounds%2].Set(n.builder)
			n.apply(b)
		}
		if got := n.batches - before; got != rounds {
			b.Fatalf("%d batches for %d changes", got, rounds)
		}
	})
}

// BenchmarkFirstPacket sends the first packets of connections from the client through the
// node, to a Service and to one of its pods directly, in turns. One operation is a round of
// both; the figures are medians. Both have the same in them that has nothing to do with
// Services: the client, the link there and back, connection tracking. The packets of a round
// are few, so that most rounds are over before another process wants the processor.
func BenchmarkFirstPacket(b *testing.B) {
	forBackends(b, func(b *testing.B, n *benchNode) {
		client, node := netip.MustParseAddr(lab.ClientIP4), netip.MustParseAddr(lab.NodeIP4)
		service := netip.MustParseAddr(modeltest.ClusterService(n.middle).ClusterIPs[0])
		pod := netip.MustParseAddr(modeltest.ClusterSlice(n.middle, benchEndpoints, 0).Endpoints[0].Addresses[0])
		// There are no pods. What the node would send to one ends at the client.
		r := lab.Route{Dst: netip.MustParsePrefix("10.0.0.0/9"), Link: lab.UplinkName, Via: client, Source: node}
		if err := n.Node.AddRoute(r); err != nil {
			b.Fatal(err)
		}
		open := func(to netip.Addr, port uint16, count int) *syns {
			return newSYNs(b, n.Client, client, netip.AddrPortFrom(to, port), count)
		}
		const count = 100
		ways := [2]*syns{open(service, 80, count), open(pod, 8080, count)}
		n.checkTranslated(b, open(service, 80, 10*count), 10*count, service)
		compareMedians(b, [2]string{"conn", "direct"}, func(i int) time.Duration { return n.send(b, ways[i]) })
	})
}

// compareMedians takes rounds of two kinds in turns.
func compareMedians(b *testing.B, names [2]string, round func(kind int) time.Duration) {
	b.Helper()
	var took [2][]time.Duration
	for n := 0; b.Loop(); n++ {
		for k := range took {
			i := (k + n) % len(took)
			took[i] = append(took[i], round(i))
		}
	}
	var median [2]float64
	for i, list := range took {
		slices.Sort(list)
		median[i] = float64(list[len(list)/2].Nanoseconds())
	}
	for i, name := range names {
		b.ReportMetric(median[i], "ns/"+name)
	}
	b.ReportMetric(median[0]/median[1], names[0]+":"+names[1])
	b.ReportMetric(0, "ns/op")
}

// send sends segments through a node that tracks no connection yet.
func (n *benchNode) send(b *testing.B, s *syns) time.Duration {
	b.Helper()
	if err := n.Node.FlushConntrack(); err != nil {
		b.Fatal(err)
	}
	took, err := s.send()
	if err != nil {
		b.Fatal(err)
	}
	return took
}

// checkTranslated checks that so many packets become as many connections, and that each
// endpoint gets some.
func (n *benchNode) checkTranslated(b *testing.B, s *syns, count int, service netip.Addr) {
	b.Helper()
	n.send(b, s)
	var flows []*netlink.ConntrackFlow
	err := n.Node.Do(func() (err error) {
		flows, err = netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	connections, pods := 0, map[string]bool{}
	for _, f := range flows {
		if f.Forward.DstIP.Equal(service.AsSlice()) && !f.Reverse.SrcIP.Equal(f.Forward.DstIP) {
			connections++
			pods[f.Reverse.SrcIP.String()] = true
		}
	}
	if connections != count || len(pods) != benchEndpoints {
		b.Fatalf("%d connections to %d pods, want %d to %d", connections, len(pods), count, benchEndpoints)
	}
}
