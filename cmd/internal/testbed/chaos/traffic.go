package main

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// paths are how clients reach a Service.
func (w *world) paths() []lab.Path {
	nodePort := netip.AddrPortFrom(netip.MustParseAddr(lab.NodeIP4), webNodePort)
	return []lab.Path{
		{From: w.Client, Network: "tcp4", To: webVIP},
		{From: w.Client, Network: "tcp6", To: webVIP6},
		{From: w.Client, Network: "udp4", To: webVIP},
		{From: w.Client, Network: "tcp4", To: nodePort},
	}
}

// Kept connections are used all the time.
const (
	keptConns = 5 // for each path
	keptPause = 50 * time.Millisecond
	keptMore  = 9 * time.Second // longer than for a new connection: the intervals between repeated segments grow
)

// counts are of all clients.
type counts struct {
	sent, lost, wrong int       // new connections
	kept, broken      int       // connections that are kept
	last              time.Time // when the last of what was lost or broken had begun
	first             error     // the first of it
}

// newClients returns clients that do not connect yet.
func (w *world) newClients() *lab.Clients {
	c := &lab.Clients{Rate: w.o.rate, Kept: keptConns, Every: keptPause}
	c.Within = func(_ lab.Path, kept bool) time.Duration {
		if kept {
			return w.o.within + keptMore
		}
		return w.o.within
	}
	return c
}

// count adds up what clients have seen.
func count(all []lab.Seen) (c counts) {
	note := func(at time.Time, err error) {
		if at.After(c.last) {
			c.last = at
		}
		if c.first == nil {
			c.first = err
		}
	}
	for _, s := range all {
		c.sent, c.lost, c.kept, c.broken = c.sent+s.Sent, c.lost+s.Lost(), c.kept+keptConns, c.broken+len(s.Breaks)
		for _, err := range s.First {
			note(s.LastLost, err)
		}
		for _, b := range s.Breaks {
			note(b.Began, fmt.Errorf("a kept connection: %w", b.Err))
		}
		for pod, n := range s.Answered {
			if pod != "pod-1" && pod != "pod-2" {
				c.wrong += n
				note(time.Time{}, fmt.Errorf("%s answers, which is no endpoint", pod))
			}
		}
	}
	return c
}
