package userspace

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// limits bound the cost of a client or a dead endpoint. Tests have lower ones.
type limits struct {
	conns    int           // connections of a listener at a time
	allConns int           // connections of all listeners
	clients  int           // UDP clients of a listener at a time
	allUDP   int           // UDP clients of all listeners
	places   int           // listeners
	attempt  time.Duration // for connecting to one endpoint
	connect  time.Duration // for connecting to any endpoint
	grace    time.Duration // for the data in a connection's other direction, after one broke
	long     int           // messages of SCTP at a time that are longer than a buffer
	message  time.Duration // for one of these to wait for its turn, and for it to pass
	idle     time.Duration // without a datagram, after which a UDP client is forgotten
}

// limitsFor returns the limits for a scope and a number of files that the process may open. Where these
// are few, a fifth is for listeners and UDP; a connection has two files, and without a file for a pipe,
// data is copied by a buffer. With the backend, one listener may have three quarters of all connections.
func limitsFor(s Scope, files int) limits {
	const (
		rest     = 256 // files for everything else
		most     = 32768
		loopback = 1024
	)
	files = max(files-rest, 64)
	l := limits{
		allConns: min(most, files*2/5),
		allUDP:   min(most/2, files/20),
		attempt:  2 * time.Second, // a lost SYN is sent again after one
		connect:  10 * time.Second,
		grace:    250 * time.Millisecond,
		long:     64,
		message:  10 * time.Second,
		idle:     120 * time.Second, // net.netfilter.nf_conntrack_udp_timeout_stream
	}
	l.places = files - 2*l.allConns - l.allUDP
	l.conns, l.clients = l.allConns*3/4, max(1, l.allUDP*3/4)
	if s == Loopback {
		l.conns, l.clients = min(loopback, l.allConns), min(4*loopback, l.allUDP)
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

// placesError is the error of a place beyond the limit.
type placesError struct{ places int }

func (e placesError) Error() string {
	return fmt.Sprintf("this process has %d listeners, the most for its limit of open files (RLIMIT_NOFILE)", e.places)
}
