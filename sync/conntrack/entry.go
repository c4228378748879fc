package conntrack

import (
	"context"
	"net/netip"

	"github.com/vmapd/vmapd/model"
)

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

// Find returns the connection whose first packet had these addresses, and whether there is one.
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
