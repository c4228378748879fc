package userspace

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// Count has the new connections to one service port since this process serves it: connections of TCP, and
// clients of UDP. Connections to a service port without endpoints are in none of the figures, as the kernel
// refuses them because no listener is there.
type Count struct {
	Name      model.ServicePortName
	Family    model.Family
	Forwarded uint64 // connected to an endpoint
	Refused   uint64 // no endpoint accepted, or the last one had just left
}

// Counts returns the counts of all service ports that are served and counted.
func (f *Forwarder) Counts() (list []Count) {
	w := f.now.Load()
	f.flows.mu.Lock()
	defer f.flows.mu.Unlock()
	for key, c := range f.flows.counts {
		if sp, ok := w.Family(key.family).ServicePort(key.name); ok && !sp.Uncounted {
			list = append(list, *c)
		}
	}
	return list
}

// Stats are figures of one family.
type Stats struct {
	Listeners int    // open now
	Missing   int    // listeners that can't be opened now
	Absent    int    // those of Missing with an address that the node does not have
	Failures  uint64 // failed attempts to open a listener
	Accepted  uint64 // TCP connections, and new clients of UDP
}

// Stats returns the figures of each family.
func (f *Forwarder) Stats() (stats [len(model.Families)]Stats) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for vip, l := range f.listeners {
		s := &stats[model.FamilyOf(vip.Addr)]
		switch {
		case l.err == nil:
			s.Listeners++
			continue
		case errors.Is(l.err, syscall.EADDRNOTAVAIL):
			s.Absent++
		}
		s.Missing++
	}
	for family := range stats {
		stats[family].Failures, stats[family].Accepted = f.failures[family], f.accepted[family].Load()
	}
	return stats
}

// Compare lists the listeners of a family that are missing.
func (f *Forwarder) Compare(family model.Family) (list []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for vip, l := range f.listeners {
		if l.err != nil && model.FamilyOf(vip.Addr) == family {
			list = append(list, fmt.Sprintf("no listener at %v for %v: %v", vip, f.now.Load().places[vip].Port.Name, l.err))
		}
	}
	slices.Sort(list)
	return list
}

// limits bound the cost of a client or a dead endpoint. Tests have lower ones.
type limits struct {
	conns, allConns  int           // TCP connections of a listener, and of all, at a time
	clients, allUDP  int           // the same of UDP
	listeners, tries int           // tries to connect to an endpoint
	try              time.Duration // for each of these
	idle             time.Duration // without a datagram, after which a UDP client is forgotten
}

// limitsFor returns the limits for a scope and a number of files that the process may open. Of these, a fifth is
// for listeners and UDP; a connection has two sockets and, for io.Copy, two pipes: six files. One listener may
// have three quarters of all connections.
func limitsFor(s Scope, files int) limits {
	const rest, most, loopback = 256, 32768, 1024 // files for everything else; connections
	files = max(files-rest, 64)
	l := limits{
		allConns: min(most, files*2/15), allUDP: max(2, min(most/2, files/20)),
		tries: 5, try: 2 * time.Second, // a lost SYN is sent again after one
		idle: 120 * time.Second, // net.netfilter.nf_conntrack_udp_timeout_stream
	}
	l.conns, l.clients, l.listeners = l.allConns*3/4, l.allUDP*3/4, files-6*l.allConns-l.allUDP
	if s == Loopback {
		l.conns, l.clients = min(loopback, l.conns), min(4*loopback, l.clients)
	}
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
