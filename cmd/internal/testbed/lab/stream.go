package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Stream is a UDP socket that sends its name to one address again and again, and never reads
// replies, like a sender of metrics or of a log.
type Stream struct {
	conn *net.UDPConn
	sent atomic.Int64
	done chan struct{}
}

// Stream starts a Stream from an address of the namespace, with a fixed port and interval. It
// ignores errors.
func (ns *Namespace) Stream(name string, from, to netip.AddrPort, every time.Duration) (*Stream, error) {
	s := &Stream{done: make(chan struct{})}
	err := ns.Do(func() (err error) {
		// The socket is not connected, so that it gets no ICMP errors.
		s.conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(from))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("send from %v in %s: %w", from, ns.name, err)
	}
	go func() {
		defer close(s.done)
		for err := error(nil); !errors.Is(err, net.ErrClosed); time.Sleep(every) {
			_, err = s.conn.WriteToUDPAddrPort([]byte(name), to) // a rule may forbid it for a while
			s.sent.Add(1)
		}
	}()
	return s, nil
}

// Sent returns how many datagrams it has sent.
func (s *Stream) Sent() int { return int(s.sent.Load()) }

// Close ends it.
func (s *Stream) Close() {
	_ = s.conn.Close()
	<-s.done
}

// Sink counts the datagrams that come in to a port, and answers none.
type Sink struct {
	conn *net.UDPConn
	done chan struct{}

	mu    sync.Mutex
	heard map[string]int
}

// Sink opens one for a port of all addresses of the namespace.
func (ns *Namespace) Sink(port uint16) (*Sink, error) {
	s := &Sink{done: make(chan struct{}), heard: map[string]int{}}
	err := ns.Do(func() (err error) {
		s.conn, err = net.ListenUDP("udp", &net.UDPAddr{Port: int(port)}) // of both families
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("receive on port %d in %s: %w", port, ns.name, err)
	}
	go s.read()
	return s, nil
}

func (s *Sink) read() {
	defer close(s.done)
	b := make([]byte, 2048)
	for {
		n, err := s.conn.Read(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			s.mu.Lock()
			s.heard[string(b[:n])]++
			s.mu.Unlock()
		}
	}
}

// Heard returns how many datagrams came in from the stream of that name.
func (s *Sink) Heard(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard[name]
}

// Close ends it.
func (s *Sink) Close() {
	_ = s.conn.Close()
	<-s.done
}
