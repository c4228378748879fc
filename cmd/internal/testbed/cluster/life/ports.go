package life

import (
	"net/netip"
	"sync/atomic"
	"time"
)

// Connection tracking has an entry for a query over UDP for two minutes at most, and sends another one from the same
// port to the same pod, which may have ended meanwhile. The kernel chooses one port in a hundred again so soon: the
// counts would be luck. So the queries of a route use these ports in turn, which the kernel does not choose, and none
// again within a quarter of an hour.
const (
	firstPort = 10_000
	manyPorts = 20_000
)

// ports gives the source ports of a route's questions over UDP.
type ports struct{ taken atomic.Uint64 }

// newPorts goes on where clients that began earlier are by now.
func newPorts(now time.Time) *ports {
	p := &ports{}
	p.taken.Store(uint64(now.Unix()) * rate)
	return p
}

// next returns a port, and an address that leaves the choice of the source to the kernel.
func (p *ports) next(to netip.Addr) netip.AddrPort {
	source := netip.IPv4Unspecified()
	if to.Is6() {
		source = netip.IPv6Unspecified()
	}
	return netip.AddrPortFrom(source, uint16(firstPort+(p.taken.Add(1)-1)%manyPorts))
}
