package conntrack

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// stream is a UDP socket that sends its name to one address again and again, and never reads replies, like a sender of
// metrics or of a log.
type stream struct{ sent atomic.Int64 }

// listen opens a socket in a namespace until the test ends. It is not connected, so that it gets no ICMP errors.
func listen(t *testing.T, ns *lab.Namespace, at netip.AddrPort) (conn *net.UDPConn) {
	t.Helper()
	err := ns.Do(func() (err error) { conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at)); return err })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func newStream(t *testing.T, ns *lab.Namespace, name string, from, to netip.AddrPort) *stream {
	t.Helper()
	s, conn := &stream{}, listen(t, ns, from)
	go func() {
		const every = 5 * time.Millisecond
		for err := error(nil); !errors.Is(err, net.ErrClosed); time.Sleep(every) {
			_, err = conn.WriteToUDPAddrPort([]byte(name), to) // a rule may forbid it for a while
			s.sent.Add(1)
		}
	}()
	return s
}

// sink counts the datagrams that come in to a port, by stream, and answers none.
type sink struct {
	mu    sync.Mutex
	heard map[string]int
}

func newSink(t *testing.T, ns *lab.Namespace, port uint16) *sink {
	t.Helper()
	s, conn := &sink{heard: map[string]int{}}, listen(t, ns, netip.AddrPortFrom(netip.IPv6Unspecified(), port)) // of both families
	go func() {
		b := make([]byte, 2048)
		for {
			n, err := conn.Read(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				s.mu.Lock()
				s.heard[string(b[:n])]++
				s.mu.Unlock()
			}
		}
	}()
	return s
}

// from returns how many datagrams came in from the stream of that name.
func (s *sink) from(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard[name]
}
