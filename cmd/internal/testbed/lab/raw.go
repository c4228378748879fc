package lab

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// Segment is a TCP segment that no connection made.
type Segment struct {
	From, To netip.AddrPort
	Seq, Ack uint32
	Flags    byte // as in the header: FIN 1, SYN 2, RST 4, PSH 8, ACK 16
	Payload  string
}

const tcpHeaderLen = 20

// marshal returns the segment with its checksum (RFC 9293, 3.1).
func (s Segment) marshal() []byte {
	b := make([]byte, tcpHeaderLen, tcpHeaderLen+len(s.Payload))
	binary.BigEndian.PutUint16(b[0:], s.From.Port())
	binary.BigEndian.PutUint16(b[2:], s.To.Port())
	binary.BigEndian.PutUint32(b[4:], s.Seq)
	binary.BigEndian.PutUint32(b[8:], s.Ack)
	b[12], b[13] = tcpHeaderLen/4<<4, s.Flags
	const window = 0xffff
	binary.BigEndian.PutUint16(b[14:], window)
	b = append(b, s.Payload...)

	const protocol = 6
	sum := uint32(protocol) + uint32(len(b))
	add := func(data []byte) {
		for i, c := range data {
			sum += uint32(c) << (8 * (1 - i%2))
		}
	}
	add(s.From.Addr().AsSlice())
	add(s.To.Addr().AsSlice())
	add(b)
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(b[16:], ^uint16(sum))
	return b
}

func rawNetwork(a netip.Addr) string {
	if a.Is4() {
		return "ip4:tcp"
	}
	return "ip6:tcp"
}

// Send sends a segment past the namespace's own TCP. Its source address must be the
// namespace's.
func (ns *Namespace) Send(s Segment) error {
	err := ns.Do(func() error {
		from := &net.IPAddr{IP: s.From.Addr().AsSlice()}
		c, err := net.DialIP(rawNetwork(s.To.Addr()), from, &net.IPAddr{IP: s.To.Addr().AsSlice()})
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		_, err = c.Write(s.marshal())
		return err
	})
	if err != nil {
		return fmt.Errorf("send a segment from %s: %w", ns.name, err)
	}
	return nil
}

// Sniffer receives all TCP segments to one address.
type Sniffer struct{ conn *net.IPConn }

// Sniff opens a Sniffer, which receives the segments from now on.
func (ns *Namespace) Sniff(a netip.Addr) (*Sniffer, error) {
	s := &Sniffer{}
	err := ns.Do(func() error {
		var err error
		s.conn, err = net.ListenIP(rawNetwork(a), &net.IPAddr{IP: a.AsSlice()})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen to segments in %s: %w", ns.name, err)
	}
	return s, nil
}

// Close ends it.
func (s *Sniffer) Close() { _ = s.conn.Close() }

// Next waits for the next segment. Its To is only the port.
func (s *Sniffer) Next(timeout time.Duration) (Segment, error) {
	if err := s.conn.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return Segment{}, err
	}
	b := make([]byte, 1<<16)
	for {
		n, from, err := s.conn.ReadFromIP(b)
		if err != nil {
			return Segment{}, fmt.Errorf("listen to segments: %w", err)
		}
		a, ok := netip.AddrFromSlice(from.IP)
		if n < tcpHeaderLen || !ok {
			continue
		}
		if data := int(b[12]>>4) * 4; data >= tcpHeaderLen && data <= n {
			return Segment{
				From: netip.AddrPortFrom(a.Unmap(), binary.BigEndian.Uint16(b)),
				To:   netip.AddrPortFrom(netip.Addr{}, binary.BigEndian.Uint16(b[2:])),
				Seq:  binary.BigEndian.Uint32(b[4:]), Ack: binary.BigEndian.Uint32(b[8:]), Flags: b[13],
				Payload: string(b[data:n]),
			}, nil
		}
	}
}
