package traffic

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// segment is a TCP segment that no connection made.
type segment struct {
	from, to netip.AddrPort
	seq, ack uint32
	flags    byte // as in the header: FIN 1, SYN 2, RST 4, PSH 8, ACK 16
	payload  string
}

const tcpHeaderLen = 20

// marshal returns the segment (RFC 9293, 3.1) without a checksum, which raw sockets do not ask for.
func (s segment) marshal() []byte {
	b := make([]byte, tcpHeaderLen, tcpHeaderLen+len(s.payload))
	binary.BigEndian.PutUint16(b[0:], s.from.Port())
	binary.BigEndian.PutUint16(b[2:], s.to.Port())
	binary.BigEndian.PutUint32(b[4:], s.seq)
	binary.BigEndian.PutUint32(b[8:], s.ack)
	b[12], b[13] = tcpHeaderLen/4<<4, s.flags
	const window = 0xffff
	binary.BigEndian.PutUint16(b[14:], window)
	return append(b, s.payload...)
}

func rawNetwork(a netip.Addr) string {
	if a.Is4() {
		return "ip4:tcp"
	}
	return "ip6:tcp"
}

// dialRaw opens a socket in a namespace that sends segments past its own TCP, from one of its addresses.
func dialRaw(t *testing.T, ns *lab.Namespace, from, to netip.Addr) (c *net.IPConn) {
	t.Helper()
	err := ns.Do(func() (err error) {
		c, err = net.DialIP(rawNetwork(to), &net.IPAddr{IP: from.AsSlice()}, &net.IPAddr{IP: to.AsSlice()})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// sniff opens a socket that receives all TCP segments to an address.
func sniff(t *testing.T, ns *lab.Namespace, a netip.Addr) (c *net.IPConn) {
	t.Helper()
	err := ns.Do(func() (err error) {
		c, err = net.ListenIP(rawNetwork(a), &net.IPAddr{IP: a.AsSlice()})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// next waits for the next segment with data, and returns from where it is.
func next(t *testing.T, c *net.IPConn) (from netip.AddrPort, payload string) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(vmapdtest.Patience)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1<<16)
	for {
		n, at, err := c.ReadFromIP(b)
		if err != nil {
			t.Fatal(err)
		}
		a, _ := netip.AddrFromSlice(at.IP)
		if data := int(b[12]>>4) * 4; n > tcpHeaderLen && data < n {
			return netip.AddrPortFrom(a.Unmap(), binary.BigEndian.Uint16(b)), string(b[data:n])
		}
	}
}
