package modeltest

import (
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/model"
)

// Names of input interfaces: of one pod, of all pods, and of the network.
const (
	PodInterface = "cali1"
	PodBridge    = "cbr0"
	Uplink       = "eth0"
)

// Connection makes a connection, most often to a frontend in the snapshot and from a source
// that matters to it. Its destination is never a loopback address, for which backends have
// no rules.
func Connection(r *Random, s *model.Snapshot) model.Connection {
	fs := s.Family(model.IPv4)
	if r.IntN(3) == 0 {
		fs = s.Family(model.IPv6)
	}
	sp, fe := r.frontend(fs)
	c := r.destination(fs, fe)
	r.source(&c, fs, sp, fe)
	return c
}

// Sequence makes n connections as Connection does. Every second one comes from a client that
// made one before, so that what is remembered of a client decides about its next connection.
func Sequence(r *Random, s *model.Snapshot, n int) []model.Connection {
	var list []model.Connection
	for range n {
		c := Connection(r, s)
		if len(list) > 0 && r.IntN(2) == 0 {
			if o := pick(r, list); o.Dest.Addr().Is4() == c.Dest.Addr().Is4() {
				c.Source, c.Node, c.Interface = o.Source, o.Node, o.Interface
			}
		}
		list = append(list, c)
	}
	return list
}

// frontend picks a frontend of a service port, or nil if there is none. It prefers one that
// forwards and, now and then, one with an endpoint's address and port.
func (r *Random) frontend(s *model.FamilySnapshot) (sp *model.ServicePort, fe *model.Frontend) {
	ports := slices.Collect(s.ServicePorts())
	ports = slices.DeleteFunc(ports, func(sp *model.ServicePort) bool { return len(sp.Frontends) == 0 })
	if len(ports) == 0 {
		return nil, nil
	}
	if r.IntN(8) == 0 {
		for _, sp := range ports {
			for i, fe := range sp.Frontends {
				at := netip.AddrPortFrom(fe.VIP.Addr, fe.VIP.Port)
				if slices.ContainsFunc(sp.Endpoints, func(e model.Endpoint) bool { return e.Addr == at }) {
					return sp, &sp.Frontends[i]
				}
			}
		}
	}
	for range 4 {
		sp = pick(r, ports)
		fe = &sp.Frontends[r.IntN(len(sp.Frontends))]
		if fe.Action != model.Reject && (fe.Kind != model.NodePort || len(s.NodePortAddrs) > 0) {
			break
		}
	}
	return sp, fe
}

// destination makes a connection with its destination.
func (r *Random) destination(s *model.FamilySnapshot, fe *model.Frontend) model.Connection {
	c := model.Connection{Protocol: pick(r, []model.Protocol{model.TCP, model.UDP, model.SCTP})}
	kind := r.IntN(16)
	if fe == nil || kind == 0 {
		others := []string{"172.30.0.200", "203.0.113.200", "10.0.0.2", NodeIP4}
		if s.Family == model.IPv6 {
			others = []string{"fd00:172:30::c8", "2001:db8:203::c8", "fd00:10::2", NodeIP6}
		}
		c.Dest = netip.AddrPortFrom(netip.MustParseAddr(pick(r, others)), pick(r, []uint16{80, 443, 30000}))
		return c
	}
	addr, port := fe.VIP.Addr, fe.VIP.Port
	if fe.Kind == model.NodePort {
		addr = r.nodePortAddr(s)
	}
	if kind != 1 {
		c.Protocol = fe.VIP.Protocol
	}
	if kind == 2 {
		port = 81 // which no Service has
	}
	c.Dest = netip.AddrPortFrom(addr, port)
	return c
}

// nodePortAddr returns an address on which node ports answer or, now and then, another.
func (r *Random) nodePortAddr(s *model.FamilySnapshot) netip.Addr {
	if len(s.NodePortAddrs) > 0 && r.IntN(8) != 0 {
		return pick(r, s.NodePortAddrs)
	}
	others := []string{"192.168.0.3", "192.168.98.2", "10.0.0.1"}
	if s.Family == model.IPv6 {
		others = []string{"fd00:192:168::3", "fd00:192:168:98::2", "fd00:10::1"}
	}
	return pick(r, append(slices.Clip(s.NodeAddrs), netip.MustParseAddr(pick(r, others))))
}

// source fills in the source of a connection.
func (r *Random) source(c *model.Connection, s *model.FamilySnapshot, sp *model.ServicePort, fe *model.Frontend) {
	outside := netip.MustParseAddr(pick(r, []string{"203.0.113.7", "203.0.113.9", "203.0.113.200"}))
	if s.Family == model.IPv6 {
		outside = netip.MustParseAddr(pick(r, []string{"2001:db8:203::7", "2001:db8:203::c8"}))
	}
	c.Source, c.Interface = outside, Uplink
	switch kind := r.IntN(12); {
	case kind < 3:
		c.Source = Pod(s.Family, r.IntN(12))
		c.Interface = pick(r, []string{PodInterface, PodBridge, Uplink}) // the last is another node's
	case kind < 6 && len(s.NodeAddrs) > 0:
		c.Source = pick(r, s.NodeAddrs)
	case kind == 6 && fe != nil && fe.Kind != model.NodePort:
		// A process on a node that has the address as its own.
		c.Source, c.Node, c.Interface = fe.VIP.Addr, true, ""
	case kind < 8 && sp != nil && len(sp.SourceRanges) > 0:
		// At the edge of a range: of a single address, just beyond.
		if p := pick(r, sp.SourceRanges); p.Bits() > 0 {
			c.Source = p.Addr().Next()
		}
	case kind < 10 && sp != nil && len(sp.Endpoints) > 0:
		e := pick(r, sp.Endpoints)
		c.Source = e.Addr.Addr()
		if e.Local {
			c.Interface = pick(r, []string{PodInterface, PodBridge})
		}
	}
	if slices.Contains(s.NodeAddrs, c.Source) {
		c.Node, c.Interface = true, ""
	}
}
