package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// service is a Service after checking: only what can be programmed is left.
type service struct {
	name     NamespacedName
	created  time.Time
	ports    []servicePort
	families [len(Families)]serviceAddrs
	problems []Problem // what was left out, and why
}

// serviceAddrs are a Service's addresses of one family, by FrontendKind up to
// ExternalIP. Without a cluster IP a Service has no part in a family.
type serviceAddrs struct {
	clusterIP netip.Addr
	byKind    [NodePort][]netip.Addr
}

type servicePort struct {
	name     ServicePortName
	port     uint16
	nodePort uint16 // 0 means none
}

// older orders Services that claim the same address: the oldest wins, always.
func (s *service) older(o *service) bool {
	if !s.created.Equal(o.created) {
		return s.created.Before(o.created)
	}
	if s.name.Namespace != o.name.Namespace {
		return s.name.Namespace < o.name.Namespace
	}
	return s.name.Name < o.name.Name
}

func (s *service) problem(field, format string, args ...any) {
	s.problems = append(s.problems, Problem{
		Object:  ObjectRef{"Service", s.name},
		Field:   field,
		Message: fmt.Sprintf(format, args...),
	})
}

// parseService checks a Service. It returns nil for one that is not this proxy's
// business: headless, ExternalName, or served by another proxy.
func parseService(in Service) *service {
	s := &service{name: in.NamespacedName, created: in.Created}
	if _, ok := in.Labels[LabelServiceProxyName]; ok {
		return nil
	}
	if _, ok := in.Labels[LabelHeadless]; ok {
		return nil
	}
	if in.Type == "ExternalName" {
		return nil
	}
	if len(in.ClusterIPs) == 0 || in.ClusterIPs[0] == "" || in.ClusterIPs[0] == "None" {
		return nil
	}
	if err := checkName(in.NamespacedName); err != nil {
		s.problem("metadata.name", "%v", err)
		return s
	}
	s.parseAddrs(in)
	for i, p := range in.Ports {
		s.parsePort(fmt.Sprintf("spec.ports[%d]", i), p)
	}
	s.reportUnsupported(in)
	return s
}

func (s *service) parseAddrs(in Service) {
	for i, ip := range in.ClusterIPs {
		field := fmt.Sprintf("spec.clusterIPs[%d]", i)
		a, err := parseUnicast(ip)
		if err != nil {
			s.problem(field, "%v", err)
			continue
		}
		f := &s.families[FamilyOf(a)]
		if f.clusterIP.IsValid() {
			s.problem(field, "a second %v cluster IP", FamilyOf(a))
			continue
		}
		f.clusterIP = a
		f.byKind[ClusterIP] = []netip.Addr{a}
	}
	for i, ing := range in.Ingress {
		// A load balancer that is a proxy must see its own traffic (KEP-1860), and
		// one with only a host name has no address to capture.
		if ing.IP == "" || ing.IPMode == "Proxy" {
			continue
		}
		s.addAddr(LoadBalancerIP, fmt.Sprintf("status.loadBalancer.ingress[%d].ip", i), ing.IP)
	}
	for i, ip := range in.ExternalIPs {
		s.addAddr(ExternalIP, fmt.Sprintf("spec.externalIPs[%d]", i), ip)
	}
}

func (s *service) addAddr(kind FrontendKind, field, ip string) {
	a, err := parseUnicast(ip)
	if err != nil {
		s.problem(field, "%v", err)
		return
	}
	f := &s.families[FamilyOf(a)]
	for _, others := range f.byKind {
		if slices.Contains(others, a) {
			return // a load balancer's address is often repeated as an external IP
		}
	}
	f.byKind[kind] = append(f.byKind[kind], a)
}

func (s *service) parsePort(field string, p Port) {
	proto, err := ParseProtocol(p.Protocol)
	if err != nil {
		s.problem(field+".protocol", "%v", err)
		return
	}
	port, err := parsePort(p.Port)
	if err != nil {
		s.problem(field+".port", "%v", err)
		return
	}
	var nodePort uint16
	if p.NodePort != 0 {
		if nodePort, err = parsePort(p.NodePort); err != nil {
			s.problem(field+".nodePort", "%v", err)
			return
		}
	}
	if !isLabel(p.Name) && p.Name != "" {
		s.problem(field+".name", "%q is not a DNS label", p.Name)
		return
	}
	name := ServicePortName{s.name, p.Name, proto}
	for _, other := range s.ports {
		if other.name == name {
			s.problem(field+".name", "a second %s port with the name %q", strings.ToUpper(proto.String()), p.Name)
			return
		}
	}
	s.ports = append(s.ports, servicePort{name, port, nodePort})
}

// reportUnsupported says what the Service asks for and does not get. Where doing
// without would let in what its owner keeps out, the address is left out instead.
func (s *service) reportUnsupported(in Service) {
	if in.InternalTrafficPolicy == "Local" {
		s.problem("spec.internalTrafficPolicy", "Local is not supported yet: treated as Cluster")
	}
	if in.ExternalTrafficPolicy == "Local" {
		s.problem("spec.externalTrafficPolicy", "Local is not supported yet: treated as Cluster")
	}
	if in.SessionAffinity == "ClientIP" {
		s.problem("spec.sessionAffinity", "ClientIP is not supported yet: treated as None")
	}
	if len(in.SourceRanges) > 0 {
		s.problem("spec.loadBalancerSourceRanges", "not supported yet: its load-balancer addresses are left out")
		for i := range s.families {
			s.families[i].byKind[LoadBalancerIP] = nil
		}
	}
}

// A want is one frontend that a Service asks for.
type want struct {
	family Family
	kind   FrontendKind
	port   int // index into service.ports
	vip    VIP
}

// wants lists all frontends a Service asks for, of each port cluster IP first.
func (s *service) wants() []want {
	var list []want
	for _, f := range Families {
		addrs := &s.families[f]
		if !addrs.clusterIP.IsValid() {
			continue // contract of the API: no part in this family
		}
		for i, p := range s.ports {
			for kind, ips := range addrs.byKind {
				for _, a := range ips {
					list = append(list, want{f, FrontendKind(kind), i, VIP{a, p.name.Protocol, p.port}})
				}
			}
			if p.nodePort != 0 {
				list = append(list, want{f, NodePort, i, VIP{unspecified(f), p.name.Protocol, p.nodePort}})
			}
		}
	}
	return list
}

func unspecified(f Family) netip.Addr {
	if f == IPv6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}
