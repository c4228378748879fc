package life

import (
	"net/netip"
	"testing"
	"time"
)

func TestNoPortComesAgainSoon(t *testing.T) {
	const soon = 15 * time.Minute
	to := netip.MustParseAddr("172.30.0.10")
	start := time.Unix(1_800_000_000, 0)
	used := map[netip.AddrPort]time.Duration{}
	// One client after the other, each for a minute.
	for began := time.Duration(0); began < 3*soon; began += time.Minute {
		p := newPorts(start.Add(began))
		for n := range 60 * rate {
			at := began + time.Duration(n)*time.Second/rate
			port := p.next(to)
			if before, ok := used[port]; ok && at-before < soon {
				t.Fatalf("%v comes after %v and after %v", port, before, at)
			}
			used[port] = at
		}
	}
}
