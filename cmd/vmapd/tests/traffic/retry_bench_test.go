package traffic

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/model/nettest"
	"github.com/vmapd/vmapd/nft/kernel"
)

var (
	answeringVIP = netip.MustParseAddrPort("172.30.0.41:80")
	silentVIP    = netip.MustParseAddrPort("172.30.0.42:80")
	stickyVIP    = netip.MustParseAddrPort("172.30.0.43:80")
)

// newRetrying returns a node with or without connection retry. One of its Services has a pod; the endpoints of the
// others do not answer.
func newRetrying(b *testing.B, retry bool) *lab.World {
	b.Helper()
	w, err := lab.New(b.Context(), lab.Config{Pods: 1, Ports: []uint16{8080}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = w.Close() })
	client, node := netip.MustParseAddr(lab.ClientIP4), netip.MustParseAddr(lab.NodeIP4)
	r := lab.Route{Dst: netip.MustParsePrefix("10.0.0.0/9"), Link: lab.UplinkName, Via: client, Source: node}
	if err := w.Node.AddRoute(r); err != nil { // it ends at the client
		b.Fatal(err)
	}
	config := modeltest.Config()
	config.ConnectionRetry = retry
	silent := []string{"10.0.1.2", "10.0.1.3", "10.0.1.4"}
	builder := modeltest.Builder(config, modeltest.OurNode(),
		modeltest.NewService("ns1/web").On(answeringVIP.Addr().String()).TCP("", 80),
		modeltest.NewSlice("ns1/web-1", "web").TCP("", 8080).Ready(lab.FirstPodIP4),
		modeltest.NewService("ns2/silent").On(silentVIP.Addr().String()).TCP("", 80),
		modeltest.NewSlice("ns2/silent-1", "silent").TCP("", 8080).Ready(silent...),
		modeltest.NewService("ns3/sticky").On(stickyVIP.Addr().String()).TCP("", 80).Sticky(3600),
		modeltest.NewSlice("ns3/sticky-1", "sticky").TCP("", 8080).Ready(silent...))
	var backend *kernel.Backend
	err = w.Node.Do(func() (err error) {
		backend, err = kernel.Open(kernel.Options{Log: slog.New(slog.DiscardHandler)})
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = backend.Close() })
	if err := backend.Apply(b.Context(), builder.Snapshot()); err != nil {
		b.Fatal(err)
	}
	return w
}

// firstPackets returns a function that sends first packets to a Service, each from another port, and returns the time
// of one.
func firstPackets(b *testing.B, w *lab.World, to netip.AddrPort) func() time.Duration {
	b.Helper()
	const ports, packets = 60_000, 200
	all := newSYNs(b, w.Client, netip.MustParseAddr(lab.ClientIP4), to, ports)
	next := 0
	return func() time.Duration {
		s := &syns{conn: all.conn, segments: all.segments[next : next+packets]}
		next = (next + packets) % ports
		return sendUntracked(b, w.Node, s)
	}
}

// streamed returns a function that has a connection carry a byte there and back, and returns the time of one round.
func streamed(b *testing.B, w *lab.World) func() time.Duration {
	b.Helper()
	c, err := w.Client.DialContext(b.Context(), "tcp", answeringVIP.String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	line, buffer := []byte("keep\n"), make([]byte, 100)
	return func() time.Duration {
		const rounds = 200
		start := time.Now()
		for range rounds {
			if _, err := c.Write(line); err != nil {
				b.Fatal(err)
			}
			if _, err := c.Read(buffer); err != nil {
				b.Fatal(err)
			}
		}
		return time.Since(start) / rounds
	}
}

// connected returns a function that opens connections one after the other, each with an answer, and returns the time
// of one.
func connected(b *testing.B, w *lab.World) func() time.Duration {
	b.Helper()
	return func() time.Duration {
		const connections = 100
		start := time.Now()
		for range connections {
			if _, err := w.Client.Ask(b.Context(), "tcp", answeringVIP); err != nil {
				b.Fatal(err)
			}
		}
		return time.Since(start) / connections
	}
}

// BenchmarkConnectionRetry compares what first packets, connections and packets of a connection cost with connection
// retry and without, in turns; the figures are medians.
func BenchmarkConnectionRetry(b *testing.B) {
	nettest.Need(b)
	for _, bm := range []struct {
		name  string
		round func(b *testing.B, w *lab.World) func() time.Duration
	}{
		{"first packet", func(b *testing.B, w *lab.World) func() time.Duration { return firstPackets(b, w, silentVIP) }},
		{"first packet with affinity", func(b *testing.B, w *lab.World) func() time.Duration {
			return firstPackets(b, w, stickyVIP)
		}},
		{"connection", connected},
		{"round trip of an open connection", streamed},
	} {
		b.Run(bm.name, func(b *testing.B) {
			var rounds [2]func() time.Duration
			for i, retry := range []bool{true, false} {
				rounds[i] = bm.round(b, newRetrying(b, retry))
			}
			compareMedians(b, [2]string{"with", "without"}, func(i int) time.Duration { return rounds[i]() })
		})
	}
}

// BenchmarkConntrackEntry has entries of connection tracking, with connection retry and without, and reports the memory
// that the kernel's slabs of entries and of their extensions have grown by.
func BenchmarkConntrackEntry(b *testing.B) {
	nettest.Need(b)
	for name, retry := range map[string]bool{"with": true, "without": false} {
		b.Run(name, func(b *testing.B) {
			const entries = 50_000
			var grown int64
			for b.Loop() {
				w := newRetrying(b, retry)
				s := newSYNs(b, w.Client, netip.MustParseAddr(lab.ClientIP4), silentVIP, entries)
				before := slabs(b)
				if _, err := s.send(); err != nil {
					b.Fatal(err)
				}
				grown = slabs(b) - before
				if err := w.Node.FlushConntrack(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(grown)/entries, "B/entry")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// slabs returns how many bytes the kernel has in entries of connection tracking, and in objects of the sizes that
// extensions of entries may have.
func slabs(b *testing.B) (sum int64) {
	b.Helper()
	for line := range strings.Lines(testaid.Read(b, "/proc/slabinfo")) {
		var name string
		var active, objects, size int64
		const largest = 256
		_, err := fmt.Sscan(line, &name, &active, &objects, &size)
		if err == nil && (name == "nf_conntrack" || strings.HasPrefix(name, "kmalloc-") && size <= largest) {
			sum += active * size
		}
	}
	return sum
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

// sendUntracked sends segments through a node that tracks no connection yet.
func sendUntracked(b *testing.B, node *lab.Namespace, s *syns) time.Duration {
	b.Helper()
	if err := node.FlushConntrack(); err != nil {
		b.Fatal(err)
	}
	took, err := s.send()
	if err != nil {
		b.Fatal(err)
	}
	return took
}
