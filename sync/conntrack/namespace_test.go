package conntrack

import (
	"encoding/binary"
	"net/netip"
	"os"
	"testing"

	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/nettest"
)

// namespace is a network namespace of its own.
type namespace struct{ *os.File }

// newNamespace returns one, until the test ends.
func newNamespace(t testing.TB) *namespace {
	t.Helper()
	return &namespace{nettest.New(t)}
}

func (n *namespace) fd() int { return int(n.Fd()) }

func TestMain(m *testing.M) { nettest.Main(m) }

const (
	msgMake    = unix.NFNL_SUBSYS_CTNETLINK << 8
	ctaTimeout = 7
	ctaNATDst  = 13
)

func encodeTuple(ae *netlink.AttributeEncoder, kind uint16, p model.Protocol, from, to netip.AddrPort, zone uint16) {
	ae.Nested(kind, func(ae *netlink.AttributeEncoder) error {
		ae.ByteOrder = binary.BigEndian
		if zone != 0 {
			ae.Uint16(ctaTupleZone, zone)
		}
		ae.Nested(nl.CTA_TUPLE_IP, func(ae *netlink.AttributeEncoder) error {
			source, dest := uint16(nl.CTA_IP_V4_SRC), uint16(nl.CTA_IP_V4_DST)
			if to.Addr().Is6() {
				source, dest = nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
			}
			ae.Bytes(source, from.Addr().AsSlice())
			ae.Bytes(dest, to.Addr().AsSlice())
			return nil
		})
		ae.Nested(nl.CTA_TUPLE_PROTO, func(ae *netlink.AttributeEncoder) error {
			ae.Uint8(nl.CTA_PROTO_NUM, uint8(p))
			ae.Uint16(nl.CTA_PROTO_SRC_PORT, from.Port())
			ae.Uint16(nl.CTA_PROTO_DST_PORT, to.Port())
			return nil
		})
		return nil
	})
}

// creation is what makes the kernel track a flow, and translate it if its replies are to
// come from elsewhere than where it goes.
func (f *Flow) creation(t testing.TB) netlink.Message {
	t.Helper()
	ae := netlink.NewAttributeEncoder()
	encodeTuple(ae, nl.CTA_TUPLE_ORIG, f.Protocol, f.Source, f.Dest, 0)
	// With translation, the kernel makes the reply's tuple of this one.
	encodeTuple(ae, nl.CTA_TUPLE_REPLY, f.Protocol, f.Dest, f.Source, 0)
	if f.ReplySource != f.Dest {
		ae.Nested(ctaNATDst, func(ae *netlink.AttributeEncoder) error {
			const minIPv4, protocol, minIPv6, minPort = 1, 3, 4, 1
			kind := uint16(minIPv4)
			if f.ReplySource.Addr().Is6() {
				kind = minIPv6
			}
			ae.Bytes(kind, f.ReplySource.Addr().AsSlice())
			ae.Nested(protocol, func(ae *netlink.AttributeEncoder) error {
				ae.Bytes(minPort, binary.BigEndian.AppendUint16(nil, f.ReplySource.Port()))
				return nil
			})
			return nil
		})
	}
	status := uint32(1 << 3) // IPS_CONFIRMED
	if f.Answered {
		status |= ipsSeenReply
	}
	ae.Bytes(nl.CTA_STATUS, binary.BigEndian.AppendUint32(nil, status))
	ae.Bytes(ctaTimeout, binary.BigEndian.AppendUint32(nil, 600))
	if f.Zone {
		ae.Bytes(nl.CTA_ZONE, binary.BigEndian.AppendUint16(nil, 7))
	}
	m, err := message(msgMake, netlink.Request|netlink.Create|netlink.Excl|netlink.Acknowledge, model.FamilyOf(f.Dest.Addr()), ae)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (n *namespace) create(t testing.TB, count int, flowOf func(i int) Flow) {
	t.Helper()
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: n.fd()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for i := 0; i < count; {
		var batch []netlink.Message
		for ; i < count && len(batch) < 64; i++ {
			f := flowOf(i)
			batch = append(batch, f.creation(t))
		}
		if _, err := c.SendMessages(batch); err != nil {
			t.Fatal(err)
		}
		for range batch {
			if _, err := c.Receive(); err != nil {
				t.Fatalf("flow %d: %v", i, err)
			}
		}
	}
}

// fill makes so many flows from different ports that are else like one.
func (n *namespace) fill(t testing.TB, like string, count int) {
	t.Helper()
	f := parse(t, like)
	n.create(t, count, func(i int) Flow {
		const ports = 1 << 15
		f.Source = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i / ports >> 8), byte(i / ports)}), uint16(1+i%ports))
		return f
	})
}

// createEach makes a flow of each text, from ports of its own.
func (n *namespace) createEach(t testing.TB, texts []string, first int) {
	t.Helper()
	n.create(t, len(texts), func(i int) Flow {
		f := parse(t, texts[i])
		f.Source = netip.AddrPortFrom(f.Source.Addr(), uint16(first+i))
		return f
	})
}

func (n *namespace) open(t testing.TB) *Table {
	t.Helper()
	table := &Table{Dial: func() (*netlink.Conn, error) {
		return netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: n.fd()})
	}}
	t.Cleanup(table.close)
	return table
}
