package conntrack

import (
	"context"
	"net/netip"
	"sync"

	"github.com/vmapd/vmapd/model"
)

// Lister lists entries of the kernel's table, on demand. Its connection stays open, see table. The zero
// value is ready; any number of goroutines may use it.
type Lister struct {
	NetNS int // a file descriptor of the network namespace; 0: the process' own

	mu    sync.Mutex
	table *table // nil: none yet
}

// List calls each for the translated entries of a family whose original destination has one of some
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
