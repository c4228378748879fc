package conntrack

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/mdlayher/netlink"
	timo "github.com/ti-mo/conntrack"
	"github.com/vishvananda/netlink/nl"

	"github.com/vmapd/vmapd/model"
)

// Entry is a connection as the kernel's connection tracking knows it. Masquerading changes the
// destination of replies, and DNAT their source.
type Entry struct {
	Source, Dest           netip.AddrPort // as the client sent the first packet
	ReplySource, ReplyDest netip.AddrPort // of packets of the other direction
	Answered               bool           // there was a packet of the other direction
	State                  string         // of a TCP connection, as nf_conntrack names it: SYN_SENT, CLOSE, …
}

// Finder asks for single connections.
type Finder struct{ conn *netlink.Conn }

// NewFinder returns a Finder for this thread's network namespace.
func NewFinder() (*Finder, error) {
	c, err := thisKernel(0)()
	return &Finder{c}, err
}

// Close ends the connection to the kernel.
func (f *Finder) Close() { _ = f.conn.Close() }

// Find returns the connection whose first packet had these addresses, and whether there is one.
// Connections in other zones than the default one are not found.
func (f *Finder) Find(p model.Protocol, source, dest netip.AddrPort) (e Entry, found bool, err error) {
	ae := netlink.NewAttributeEncoder()
	ae.Nested(nl.CTA_TUPLE_ORIG, func(ae *netlink.AttributeEncoder) error { return encodeTuple(ae, p, source, dest) })
	m, err := message(msgGet, netlink.Request, model.FamilyOf(dest.Addr()), ae)
	if err == nil {
		_, err = f.conn.Send(m)
	}
	if err == nil {
		err = f.conn.SetReadDeadline(time.Now().Add(patience))
	}
	if err != nil {
		return e, false, fmt.Errorf("ask connection tracking: %w", err)
	}
	for m, err := range f.conn.ReceiveIter() {
		switch {
		case found: // it was the deadline
		case errors.Is(err, os.ErrNotExist):
			return e, false, nil
		case err != nil:
			return e, false, fmt.Errorf("ask connection tracking for %v → %v: %w", source, dest, err)
		default:
			// The kernel marks its only answer as a part of several, whose end never comes
			// (ctnetlink_fill_info): ti-mo/conntrack's Get waits for it.
			var event Event
			event, found = eventOf(m)
			e = event.Entry
			_ = f.conn.SetReadDeadline(time.Unix(1, 0))
		}
	}
	return e, found, nil
}

// tcpStates is enum tcp_conntrack of linux/netfilter/nf_conntrack_tcp.h.
var tcpStates = [...]string{
	"NONE", "SYN_SENT", "SYN_RECV", "ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT", "LAST_ACK", "TIME_WAIT", "CLOSE", "SYN_SENT2",
}

func entryOf(f *timo.Flow) Entry {
	e := Entry{Answered: f.Status.SeenReply()}
	e.Source, e.Dest = addresses(f.TupleOrig)
	e.ReplySource, e.ReplyDest = addresses(f.TupleReply)
	if tcp := f.ProtoInfo.TCP; tcp != nil && int(tcp.State) < len(tcpStates) {
		e.State = tcpStates[tcp.State]
	}
	return e
}

func addresses(t timo.Tuple) (from, to netip.AddrPort) {
	return netip.AddrPortFrom(t.IP.SourceAddress, t.Proto.SourcePort),
		netip.AddrPortFrom(t.IP.DestinationAddress, t.Proto.DestinationPort)
}
