package userspace

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// Stats are figures of one family.
type Stats struct {
	Listeners int    // for node ports on loopback, open now
	Missing   int    // those that can't be opened now
	Failures  uint64 // failed attempts to open a listener
	Accepted  uint64 // TCP connections, and new clients of UDP
}

// Stats returns the figures of each family.
func (f *Forwarder) Stats() (stats [len(model.Families)]Stats) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for vip := range f.listeners {
		if vip.Addr.IsLoopback() {
			stats[model.FamilyOf(vip.Addr)].Listeners++
		}
	}
	for vip := range f.missing {
		if vip.Addr.IsLoopback() {
			stats[model.FamilyOf(vip.Addr)].Missing++
		}
	}
	for family := range stats {
		stats[family].Failures, stats[family].Accepted = f.failures[family], f.accepted[family].Load()
	}
	return stats
}

// Missing returns why listeners of a family are missing.
func (f *Forwarder) Missing(family model.Family) map[model.VIP]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	texts := map[model.VIP]string{}
	for vip, err := range f.missing {
		if model.FamilyOf(vip.Addr) == family {
			texts[vip] = fmt.Sprintf("no listener at %v for %v: %v", vip, f.now.Load().places[vip].Name, err)
		}
	}
	return texts
}

// limits bound the cost of a client or a dead endpoint. Tests have lower ones.
type limits struct {
	conns, each      int           // TCP connections at a time, of all listeners and of one
	clients          int           // of UDP
	listeners, tries int           // tries to connect to an endpoint
	try              time.Duration // for each of these
	idle             time.Duration // without a datagram, after which a UDP client is forgotten
}

// limitsFor returns the limits for a number of files that the process may open. Of these, a fifth is for listeners and
// UDP; a connection has two sockets and, for io.Copy, two pipes: six files. One listener has three quarters of the
// connections at most.
func limitsFor(files int) limits {
	const rest, most = 256, 32768 // files for everything else; connections
	files = max(files-rest, 64)
	l := limits{
		conns: min(most, files*2/15), clients: max(2, min(most/2, files/20)),
		tries: 5, try: 2 * time.Second, // a lost SYN is sent again after one
		idle: 120 * time.Second, // net.netfilter.nf_conntrack_udp_timeout_stream
	}
	l.each = max(1, l.conns*3/4)
	l.listeners = files - 6*l.conns - l.clients
	return l
}

// openFiles returns how many files the process may open. The Go runtime has raised the soft limit
// to the hard one before.
func openFiles() int {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 1024 // the least that is usual
	}
	return int(min(r.Cur, 1<<24))
}
