package preflight

import (
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/model"
)

// probe is a connection to try.
type probe struct {
	model.Connection
	client  Client
	service *model.Service
	port    string // name
	kind    model.FrontendKind
	unused  bool // no port of the Service
}

// Addresses of clients outside of the cluster, of ranges for documentation (RFC 5737, RFC 3849).
var outside = [...]netip.Addr{model.IPv4: netip.MustParseAddr("198.51.100.7"), model.IPv6: netip.MustParseAddr("2001:db8:51::7")}

// clients are the addresses from which connections are tried, of one family.
type clients struct {
	localPods, otherPods []netip.Addr
	node                 netip.Addr // invalid if it is unknown
	local, remote        string     // input interfaces of pods of this node, and of others
}

// findClients looks for addresses of pods in EndpointSlices and, if there are none, takes some of
// the pods' ranges.
func (x *comparison) findClients(f model.Family) clients {
	fs := x.snapshot.Family(f)
	c := clients{local: "veth0", remote: "eth0"}
	if len(x.in.HostAddresses) > 0 || len(fs.NodeAddrs) > 0 {
		c.node = x.primary(f)
	}
	if l := x.in.Config.LocalPods; l.Interface != "" {
		if c.local = l.Interface; l.Mode == model.ByInterfacePrefix && len(l.Interface) < model.MaxInterface {
			c.local += "0"
		}
	}
	for _, s := range x.in.Objects.EndpointSlices {
		for _, e := range s.Endpoints {
			a, ok := firstAddr(e.Addresses)
			if !ok || model.FamilyOf(a) != f || x.isNode[a] {
				continue
			}
			if e.NodeName == x.in.Config.NodeName {
				c.localPods = add(c.localPods, a)
			} else if e.NodeName != "" {
				c.otherPods = add(c.otherPods, a)
			}
		}
	}
	ranges := x.podRanges(f)
	if len(c.localPods) == 0 && len(ranges) > 0 {
		c.localPods = []netip.Addr{ranges[0].Masked().Addr().Next()}
	}
	return c
}

// enough is the number of pods of which one is a client, and better no endpoint of the Service.
const enough = 64

func add(list []netip.Addr, a netip.Addr) []netip.Addr {
	if len(list) >= enough || slices.Contains(list, a) {
		return list
	}
	return append(list, a)
}

func firstAddr(list []string) (netip.Addr, bool) {
	if len(list) == 0 {
		return netip.Addr{}, false
	}
	a, err := model.ParseAddr(list[0])
	return a, err == nil
}

// primary returns the node's first address of a family.
func (x *comparison) primary(f model.Family) netip.Addr {
	for _, a := range x.nodeAddrs {
		if model.FamilyOf(a) == f {
			return a
		}
	}
	return netip.Addr{}
}

// podRanges returns the ranges of pods: first those of this node.
func (x *comparison) podRanges(f model.Family) (list []netip.Prefix) {
	for _, n := range x.in.Objects.Nodes {
		if n.Name != x.in.Config.NodeName {
			continue
		}
		for _, text := range n.PodCIDRs {
			if p, err := model.ParsePrefix(text); err == nil && model.FamilyOf(p.Addr()) == f {
				list = append(list, p)
			}
		}
	}
	for _, p := range x.in.Config.LocalPods.ClusterCIDRs {
		if model.FamilyOf(p.Addr()) == f {
			list = append(list, p)
		}
	}
	return list
}

// probes calls try for all connections to a Service in one family.
func (x *comparison) probes(f model.Family, c clients, s *model.Service, try func(probe)) {
	for _, p := range s.Ports {
		proto, err := model.ParseProtocol(p.Protocol)
		if err != nil || p.Port < 1 || p.Port > 65535 {
			continue
		}
		to := func(kind model.FrontendKind, list []string) {
			for _, text := range list {
				a, err := model.ParseAddr(text)
				if err != nil || model.FamilyOf(a) != f {
					continue
				}
				x.fromAll(c, probe{Connection: model.Connection{Dest: netip.AddrPortFrom(a, uint16(p.Port)), Protocol: proto}, service: s, port: p.Name, kind: kind}, try)
			}
		}
		to(model.ClusterIP, s.ClusterIPs)
		to(model.ExternalIP, s.ExternalIPs)
		to(model.LoadBalancerIP, ingress(s))
		if p.NodePort < 1 || p.NodePort > 65535 || !hasFamily(s, f) {
			continue
		}
		for _, a := range x.nodePortAddrs(f) {
			x.fromAll(c, probe{Connection: model.Connection{Dest: netip.AddrPortFrom(a, uint16(p.NodePort)), Protocol: proto}, service: s, port: p.Name, kind: model.NodePort}, try)
		}
	}
	x.unused(f, c, s, try)
}

// unused tries a port of the cluster IP that the Service does not have.
func (x *comparison) unused(f model.Family, c clients, s *model.Service, try func(probe)) {
	for _, text := range s.ClusterIPs {
		a, err := model.ParseAddr(text)
		if err != nil || model.FamilyOf(a) != f || len(c.localPods) == 0 {
			continue
		}
		for port := uint16(9); ; port++ { // discard
			v := model.VIP{Addr: a, Protocol: model.TCP, Port: port}
			if _, taken := x.wanted[v]; taken {
				continue
			}
			conn := model.Connection{Source: c.localPods[0], Interface: c.local, Dest: netip.AddrPortFrom(v.Addr, port), Protocol: model.TCP}
			try(probe{Connection: conn, client: LocalPod, service: s, kind: model.ClusterIP, unused: true})
			break
		}
	}
}

// fromAll tries a destination from all kinds of clients.
func (x *comparison) fromAll(c clients, p probe, try func(probe)) {
	from := func(kind Client, source netip.Addr, iface string) {
		p.client, p.Source, p.Interface, p.Node = kind, source, iface, kind == ThisNode
		if source.IsValid() {
			try(p)
		}
	}
	dest := p.Dest.Addr()
	if dest.IsLoopback() {
		from(ThisNode, dest, "")
		return
	}
	self := x.endpointsOf[p.service.NamespacedName]
	pod := func(isEndpoint bool) {
		if i := slices.IndexFunc(c.localPods, func(a netip.Addr) bool { return self[a] == isEndpoint }); i >= 0 {
			from(LocalPod, c.localPods[i], c.local)
		}
	}
	pod(false)
	from(OtherPod, x.otherThan(self, c.otherPods), c.remote)
	if x.isNode[dest] {
		from(ThisNode, dest, "")
	} else {
		from(ThisNode, c.node, "")
	}
	f := model.FamilyOf(dest)
	from(Outside, outside[f], c.remote)
	for _, text := range p.service.SourceRanges {
		r, err := model.ParsePrefix(text)
		if err == nil && model.FamilyOf(r.Addr()) == f && !r.Contains(outside[f]) && !x.inside(r) {
			a := r.Addr()
			if r.Bits() < a.BitLen() {
				a = a.Next()
			}
			from(Outside, a, c.remote)
		}
	}
	pod(true) // it may reach itself
}

// otherThan returns the first pod that is no endpoint of a Service: a connection of a pod to itself is
// the matter of its own node. If all are, it returns an address beside one of theirs.
func (x *comparison) otherThan(self map[netip.Addr]bool, pods []netip.Addr) netip.Addr {
	for _, a := range pods {
		if !self[a] {
			return a
		}
	}
	if len(pods) == 0 {
		return netip.Addr{}
	}
	a := pods[0]
	for x.isEndpoint[a] || x.isNode[a] {
		a = a.Next()
	}
	return a
}

// inside reports whether a range has addresses of pods or of the node.
func (x *comparison) inside(r netip.Prefix) bool {
	return slices.ContainsFunc(x.nodeAddrs, r.Contains) ||
		slices.ContainsFunc(x.podRanges(model.FamilyOf(r.Addr())), r.Overlaps)
}

// nodePortAddrs returns the addresses at which node ports are tried.
func (x *comparison) nodePortAddrs(f model.Family) []netip.Addr {
	list := []netip.Addr{f.Loopback()}
	for _, a := range x.nodeAddrs {
		if model.FamilyOf(a) == f {
			list = append(list, a)
		}
	}
	return list
}

// ingress returns the addresses of load balancers that the node handles (KEP-1860).
func ingress(s *model.Service) (list []string) {
	for _, in := range s.Ingress {
		if in.IPMode != "Proxy" {
			list = append(list, in.IP)
		}
	}
	return list
}

func hasFamily(s *model.Service, f model.Family) bool {
	return slices.ContainsFunc(s.ClusterIPs, func(text string) bool {
		a, err := model.ParseAddr(text)
		return err == nil && model.FamilyOf(a) == f
	})
}
