package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
)

// Flows makes connections of UDP at little cost: each is a datagram from a port of its own, and all
// are sent by one raw socket. [Namespace.Ask] takes a thread and two changes of its network namespace for
// each, which an emulated machine has the time for only some ten times a second.
type Flows struct {
	conn *net.IPConn
	from netip.Addr
	to   netip.AddrPort

	mu      sync.Mutex
	next    uint16
	waiting map[uint16]chan string // answers, by the client's port
}

// OpenFlows prepares flows over IPv4. The source address must be the namespace's, and the kernel's own ICMP
// errors for answers, which no socket waits for, should be dropped there.
func (ns *Namespace) OpenFlows(from netip.Addr, to netip.AddrPort) (*Flows, error) {
	f := &Flows{from: from, to: to, next: firstFlow, waiting: map[uint16]chan string{}}
	err := ns.Do(func() (err error) {
		f.conn, err = net.DialIP("ip4:udp", &net.IPAddr{IP: from.AsSlice()}, &net.IPAddr{IP: to.Addr().AsSlice()})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open flows from %s: %w", ns.name, err)
	}
	const buffer = 1 << 20
	_ = f.conn.SetReadBuffer(buffer) // more or less
	go f.receive()
	return f, nil
}

const (
	firstFlow   = 2000
	udpHeader   = 8
	anyQuestion = "once\n"
)

// Close ends all flows.
func (f *Flows) Close() { _ = f.conn.Close() }

// Ask begins a flow and waits for the answer. After some 63,000, ports are used again.
func (f *Flows) Ask(ctx context.Context) (Answer, error) {
	answer := make(chan string, 1)
	f.mu.Lock()
	port := f.next
	if f.next++; f.next == 0 {
		f.next = firstFlow
	}
	f.waiting[port] = answer
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.waiting, port)
		f.mu.Unlock()
	}()
	b := make([]byte, udpHeader, udpHeader+len(anyQuestion)) // without a checksum (RFC 768)
	binary.BigEndian.PutUint16(b, port)
	binary.BigEndian.PutUint16(b[2:], f.to.Port())
	binary.BigEndian.PutUint16(b[4:], uint16(cap(b)))
	_, err := f.conn.Write(append(b, anyQuestion...))
	if err == nil {
		select {
		case text := <-answer:
			return parseAnswer(text)
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return Answer{}, &ConnectionError{From: f.from.String(), Network: "udp4", To: f.to, Failure: FailureOf(err), Err: err}
}

// receive hands answers to those that wait for them.
func (f *Flows) receive() {
	b := make([]byte, 2048)
	for {
		n, _, err := f.conn.ReadFromIP(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n < udpHeader || binary.BigEndian.Uint16(b) != f.to.Port() {
			continue
		}
		f.mu.Lock()
		answer := f.waiting[binary.BigEndian.Uint16(b[2:])]
		f.mu.Unlock()
		if answer != nil {
			select {
			case answer <- string(b[udpHeader:n]):
			default: // a second one
			}
		}
	}
}
