package userspace

import (
	"time"

	"golang.org/x/sys/unix"
)

// mostVisitors, of about 300 bytes, are remembered; at the limit, the one that came least recently is forgotten.
const mostVisitors = 1 << 17

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
