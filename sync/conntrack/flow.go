package conntrack

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// flow is an entry of the kernel's table, with the fields that rules need.
type flow struct {
	id         uint32
	protocol   model.Protocol
	zone       bool // in another than the default zone, in either direction
	translated bool // its destination is (IPS_DST_NAT)
	answered   bool // there was a reply (IPS_SEEN_REPLY)
	state      byte // of a TCP connection, see tcpStates

	// The original and the reply direction. Masquerading changes the destination of replies, and DNAT their source.
	source, dest, replySource, replyDest netip.AddrPort
}

// Attributes that package nl lacks, from linux/netfilter/nfnetlink_conntrack.h.
const (
	ctaTupleZone       = 3
	ctaFilter          = 25
	ctaFilterOrigFlags = 1
)

// filterProtocol is a bit of ctaFilterOrigFlags, from the kernel's net/netfilter/nf_internals.h.
const filterProtocol = 1 << 3

// Bits of the status, from linux/netfilter/nf_conntrack_common.h.
const (
	ipsSeenReply = 1 << 1
	ipsDstNAT    = 1 << 5
)

var errShort = errors.New("message about a connection lacks an address")

// parseFlow reads a message of the kernel. It does not allocate: there may be a million flows.
func parseFlow(b []byte) (f flow, err error) {
	if len(b) < nl.SizeofNfgenmsg {
		return f, errShort
	}
	b = b[nl.SizeofNfgenmsg:]
	original, reply := attribute(b, nl.CTA_TUPLE_ORIG), attribute(b, nl.CTA_TUPLE_REPLY)
	f.id = number(b, nl.CTA_ID)
	f.protocol = model.Protocol(number(attribute(original, nl.CTA_TUPLE_PROTO), nl.CTA_PROTO_NUM))
	f.source, f.dest = parseTuple(original)
	f.replySource, f.replyDest = parseTuple(reply)
	f.zone = number(b, nl.CTA_ZONE)|number(original, ctaTupleZone)|number(reply, ctaTupleZone) != 0
	status := number(b, nl.CTA_STATUS)
	f.translated, f.answered = status&ipsDstNAT != 0, status&ipsSeenReply != 0
	tcp := attribute(attribute(b, nl.CTA_PROTOINFO), nl.CTA_PROTOINFO_TCP)
	f.state = byte(number(tcp, nl.CTA_PROTOINFO_TCP_STATE))
	if !f.source.IsValid() || !f.dest.IsValid() || !f.replySource.IsValid() || !f.replyDest.IsValid() {
		return f, errShort
	}
	return f, nil
}

func parseTuple(b []byte) (from, to netip.AddrPort) {
	ip, ports := attribute(b, nl.CTA_TUPLE_IP), attribute(b, nl.CTA_TUPLE_PROTO)
	end := func(v4, v6, port uint16) netip.AddrPort {
		a, ok := netip.AddrFromSlice(attribute(ip, v4))
		if !ok {
			a, _ = netip.AddrFromSlice(attribute(ip, v6))
		}
		return netip.AddrPortFrom(a, uint16(number(ports, port)))
	}
	return end(nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC, nl.CTA_PROTO_SRC_PORT),
		end(nl.CTA_IP_V4_DST, nl.CTA_IP_V6_DST, nl.CTA_PROTO_DST_PORT)
}

// number reads an integer in the network's byte order; 0: there is none.
func number(b []byte, kind uint16) (n uint32) {
	for _, part := range attribute(b, kind) {
		n = n<<8 | uint32(part)
	}
	return n
}

// attribute returns what the first netlink attribute of a kind holds (struct nlattr, netlink(7)); nil: there is none.
func attribute(b []byte, want uint16) []byte {
	const kindMask = 0x3fff
	for len(b) >= unix.SizeofNlAttr {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofNlAttr || size > len(b) {
			return nil
		}
		if binary.NativeEndian.Uint16(b[2:])&kindMask == want {
			return b[unix.SizeofNlAttr:size]
		}
		b = b[min(len(b), (size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1)):]
	}
	return nil
}

// Lister lists entries of the kernel's table, on demand. Its connection stays open, see table. The zero
// value is ready; any number of goroutines may use it.
type Lister struct {
	NetNS int // a file descriptor of the network namespace; 0: the process' own

	mu    sync.Mutex
	table *table // nil: none yet
}

// List calls each for the translated entries of a family with an original destination that has one of some
// protocols and ports; the addresses are left to the caller.
func (l *Lister) List(ctx context.Context, of model.Family, ports []model.VIP, each func(Entry)) error {
	wanted := map[model.VIP]bool{} // without addresses
	for _, p := range ports {
		wanted[model.VIP{Protocol: p.Protocol, Port: p.Port}] = true
	}
	return l.list(ctx, of, func(f *flow) {
		translated := f.replySource != f.dest && !f.zone // IPVS sets no status
		if translated && wanted[model.VIP{Protocol: f.protocol, Port: f.dest.Port()}] {
			each(f.entry())
		}
	})
}

// list calls each for the entries of a family.
func (l *Lister) list(ctx context.Context, of model.Family, each func(*flow)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.table == nil {
		l.table = &table{dial: thisKernel(l.NetNS)}
	}
	_, _, err := l.table.sweep(ctx, of, 0, func(f *flow) bool {
		each(f)
		return false
	})
	return err
}

// Entry is a connection as the kernel's connection tracking knows it. Masquerading changes the
// destination of replies, and DNAT their source.
type Entry struct {
	Protocol               model.Protocol
	Source, Dest           netip.AddrPort // as the client sent the first packet
	ReplySource, ReplyDest netip.AddrPort // of packets of the other direction
	Answered               bool           // there was a packet of the other direction
	State                  string         // of a TCP connection, as nf_conntrack names it: SYN_SENT, CLOSE, …
}

// tcpStates is enum tcp_conntrack of linux/netfilter/nf_conntrack_tcp.h. The first is none.
var tcpStates = [...]string{
	"", "SYN_SENT", "SYN_RECV", "ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT", "LAST_ACK", "TIME_WAIT", "CLOSE", "SYN_SENT2",
}

func (f *flow) entry() Entry {
	e := Entry{f.protocol, f.source, f.dest, f.replySource, f.replyDest, f.answered, ""}
	if int(f.state) < len(tcpStates) {
		e.State = tcpStates[f.state]
	}
	return e
}

// Find returns the connection that began with these addresses, and whether there is one.
// Connections in other zones than the default one are not found.
func (l *Lister) Find(
	ctx context.Context, p model.Protocol, source, dest netip.AddrPort,
) (e Entry, found bool, err error) {
	err = l.list(ctx, model.FamilyOf(dest.Addr()), func(f *flow) {
		if f.protocol == p && f.source == source && f.dest == dest && !f.zone {
			e, found = f.entry(), true
		}
	})
	return e, found, err
}
