package traffic

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/model/nettest"
	"github.com/vmapd/vmapd/nft/kernel"
)

var (
	answeringVIP = netip.MustParseAddr("172.30.0.41")
	silentVIP    = netip.MustParseAddrPort("172.30.0.42:80")
)

// newDetecting returns a node with two Services, with or without outlier detection: one has a pod, and one endpoints that
// do not answer.
func newDetecting(b *testing.B, detect bool) *lab.World {
	b.Helper()
	w, err := lab.New(b.Context(), lab.Config{Pods: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = w.Close() })
	client := netip.MustParseAddr(lab.ClientIP4)
	r := lab.Route{Dst: netip.MustParsePrefix("10.0.0.0/9"), Link: lab.UplinkName, Via: client, Source: netip.MustParseAddr(lab.NodeIP4)}
	if err := w.Node.AddRoute(r); err != nil { // it ends at the client
		b.Fatal(err)
	}
	config := modeltest.Config()
	config.OutlierDetection = detect
	builder := modeltest.Builder(config, modeltest.OurNode(),
		modeltest.NewService("ns1/web").On(answeringVIP.String()).TCP("tcp", 80).UDP("udp", 80).UDP("once", 81),
		modeltest.NewSlice("ns1/web-1", "web").TCP("tcp", 8080).UDP("udp", 8080).UDP("once", 8081).Ready(lab.FirstPodIP4),
		modeltest.NewService("ns2/silent").On(silentVIP.Addr().String()).TCP("", 80),
		modeltest.NewSlice("ns2/silent-1", "silent").TCP("", 8080).Ready("10.0.1.2", "10.0.1.3", "10.0.1.4"))
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

// serveStreams discards all that comes to a pod. It answers UDP's first packet to port 8081.
func serveStreams(b *testing.B, pod *lab.Pod) {
	b.Helper()
	err := pod.Do(func() error {
		l, err := net.Listen("tcp4", ":8080")
		if err != nil {
			return err
		}
		b.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer func() { _ = c.Close() }()
					buffer := make([]byte, 1<<20)
					for {
						n, err := io.ReadFull(c, buffer)
						if err != nil || n < len(buffer) {
							return
						}
						if _, err := c.Write(buffer[:1]); err != nil {
							return
						}
					}
				}()
			}
		}()
		for _, at := range []string{":8080", ":8081"} {
			u, err := net.ListenPacket("udp4", at)
			if err != nil {
				return err
			}
			b.Cleanup(func() { _ = u.Close() })
			go func() {
				buffer := make([]byte, 1500)
				for n := 0; ; n++ {
					_, from, err := u.ReadFrom(buffer)
					if err != nil {
						return
					}
					if at == ":8081" && n == 0 {
						_, _ = u.WriteTo(buffer[:1], from)
					}
				}
			}()
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

// busy is how long all processors of the machine have worked: much of what a packet costs is in no process.
func busy(b *testing.B) time.Duration {
	b.Helper()
	text := testaid.Read(b, "/proc/stat")
	var user, nice, system, idle, iowait, irq, softirq int64
	if _, err := fmt.Sscanf(text, "cpu %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &iowait, &irq, &softirq); err != nil {
		b.Fatal(err)
	}
	const tick = 10 * time.Millisecond // USER_HZ
	return time.Duration(user+nice+system+irq+softirq) * tick
}

// BenchmarkOutlierDetection compares what packets through a Service cost with outlier detection and without, in turns; the
// figures are medians.
func BenchmarkOutlierDetection(b *testing.B) {
	nettest.Need(b)
	const packets = 200
	dial := func(b *testing.B, w *lab.World, network string, port uint16) net.Conn {
		b.Helper()
		serveStreams(b, w.Pods()[0])
		c, err := w.Client.DialContext(b.Context(), network, netip.AddrPortFrom(answeringVIP, port).String())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = c.Close() })
		return c
	}
	writes := func(b *testing.B, c net.Conn) func() time.Duration {
		b.Helper()
		return func() time.Duration {
			start := time.Now()
			for range packets {
				if _, err := c.Write([]byte("x")); err != nil {
					b.Fatal(err)
				}
			}
			return time.Since(start) / packets
		}
	}
	for _, bm := range []struct {
		name  string
		round func(b *testing.B, w *lab.World) func() time.Duration
	}{
		{"first packet of TCP", func(b *testing.B, w *lab.World) func() time.Duration {
			s := newSYNs(b, w.Client, netip.MustParseAddr(lab.ClientIP4), silentVIP, packets)
			return func() time.Duration { return (&benchNode{World: w}).send(b, s) }
		}},
		{"first packet of TCP, sent again", func(b *testing.B, w *lab.World) func() time.Duration {
			s := newSYNs(b, w.Client, netip.MustParseAddr(lab.ClientIP4), silentVIP, packets)
			return func() time.Duration {
				(&benchNode{World: w}).send(b, s)
				took, err := s.send()
				if err != nil {
					b.Fatal(err)
				}
				return took
			}
		}},
		{"packet of UDP, not answered", func(b *testing.B, w *lab.World) func() time.Duration {
			return writes(b, dial(b, w, "udp", 80))
		}},
		{"packet of UDP, answered", func(b *testing.B, w *lab.World) func() time.Duration {
			c := dial(b, w, "udp", 81)
			if _, err := c.Write([]byte("x")); err != nil {
				b.Fatal(err)
			}
			if _, err := c.Read(make([]byte, 1)); err != nil {
				b.Fatal(err)
			}
			return writes(b, c)
		}},
		{"GiB of TCP, processor time", func(b *testing.B, w *lab.World) func() time.Duration {
			c, data := dial(b, w, "tcp", 80), make([]byte, 1<<20)
			return func() time.Duration {
				start := busy(b)
				for range 1024 {
					if _, err := c.Write(data); err != nil {
						b.Fatal(err)
					}
					if _, err := c.Read(data[:1]); err != nil {
						b.Fatal(err)
					}
				}
				return busy(b) - start
			}
		}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			var rounds [2]func() time.Duration
			for i, detect := range []bool{true, false} {
				rounds[i] = bm.round(b, newDetecting(b, detect))
			}
			compareMedians(b, [2]string{"with", "without"}, func(i int) time.Duration { return rounds[i]() })
		})
	}
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
