package userspace

import (
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// compare runs a benchmark with a server, directly and through a Forwarder.
func compare(b *testing.B, protocol string, server netip.AddrPort, bench func(b *testing.B, at string)) {
	b.Helper()
	f, port := New(Options{Scope: Loopback}), freePort(b)
	f.sockets = &network{servers: map[string]netip.AddrPort{"10.0.0.2:8080": server}, at: map[string]string{}}
	s := modeltest.Snapshot(config(true), modeltest.OurNode(), web(protocol, port), slice(model.IPv4, protocol, "10.0.0.2"))
	running(b, f)
	f.Follow(s)
	eventually(b, "the node port is open", func() bool { return f.Stats()[model.IPv4].Listeners == 1 })
	b.Run("direct", func(b *testing.B) { bench(b, server.String()) })
	b.Run("forwarded", func(b *testing.B) { bench(b, nodePort(model.IPv4, port)) })
}

func dial(b *testing.B, protocol, at string) net.Conn {
	b.Helper()
	c, err := net.Dial(protocol, at)
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// A round trip of one byte.
func BenchmarkRoundTrip(b *testing.B) {
	for protocol, server := range map[string]netip.AddrPort{
		"TCP": tcpServer(b, model.IPv4, func(c *net.TCPConn) { _, _ = io.Copy(c, c) }),
		"UDP": udpServer(b, model.IPv4, 'a'),
	} {
		b.Run(protocol, func(b *testing.B) {
			compare(b, protocol, server, func(b *testing.B, at string) {
				network := map[string]string{"TCP": "tcp", "UDP": "udp"}[protocol]
				c := dial(b, network, at)
				defer hangUp(c)
				var buffer [8]byte
				for b.Loop() {
					if _, err := c.Write(buffer[:1]); err != nil {
						b.Fatal(err)
					}
					if _, err := c.Read(buffer[:]); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

// Connecting, hearing one byte, closing.
func BenchmarkConnect(b *testing.B) {
	server := tcpServer(b, model.IPv4, func(c *net.TCPConn) { _, _ = c.Write([]byte("a")) })
	compare(b, "TCP", server, func(b *testing.B, at string) {
		for b.Loop() {
			c := dial(b, "tcp", at)
			if n, err := io.Copy(io.Discard, c); n != 1 || err != nil {
				b.Fatal(n, err)
			}
			hangUp(c)
		}
	})
}

func BenchmarkThroughput(b *testing.B) {
	server := tcpServer(b, model.IPv4, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
	compare(b, "TCP", server, func(b *testing.B, at string) {
		c := dial(b, "tcp", at)
		defer hangUp(c)
		data := make([]byte, 1<<20)
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			if _, err := c.Write(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// One of 2000 node ports gets another endpoint.
func BenchmarkFollowOneEndpoint(b *testing.B) {
	builder := modeltest.Builder(config(true), modeltest.OurNode())
	nodePorts(2000, builder)
	f := New(Options{Scope: Loopback})
	defer f.close()
	f.sockets = &network{anyPort: true, at: map[string]string{}}
	snapshots := [2]*model.Snapshot{builder.Snapshot()}
	modeltest.ClusterSlice(7, 3, 0).Set(builder)
	snapshots[1] = builder.Snapshot()
	for i := 0; b.Loop(); i++ {
		_ = f.Apply(b.Context(), snapshots[i%2])
	}
}
