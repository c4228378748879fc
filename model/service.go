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

	internalLocal, externalLocal bool // the traffic policies
	affinity                     time.Duration
	algorithm                    *Algorithm     // nil: the Service does not say
	connectionGrace              *time.Duration // likewise

	healthCheckNodePort uint16 // 0 means none
}

// serviceAddrs are a Service's addresses of one family, by FrontendKind up to
// ExternalIP. Without a cluster IP a Service has no part in a family.
type serviceAddrs struct {
	clusterIP netip.Addr
	byKind    [NodePort][]netip.Addr

	restricted   bool // load-balancer addresses are for sourceRanges only
	sourceRanges []netip.Prefix
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
	s.internalLocal = s.parsePolicy("spec.internalTrafficPolicy", in.InternalTrafficPolicy)
	s.externalLocal = s.parsePolicy("spec.externalTrafficPolicy", in.ExternalTrafficPolicy)
	s.parseAffinity(in)
	s.parseAlgorithm(in.Algorithm)
	s.parseConnectionGrace(in.ConnectionGrace)
	s.parseHealthCheck(in)
	s.parseSourceRanges(in.SourceRanges)
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

// parsePolicy reports whether a traffic policy is Local.
func (s *service) parsePolicy(field, policy string) bool {
	switch policy {
	case "", "Cluster":
		return false
	case "Local":
		return true
	}
	s.problem(field, "%q is neither Cluster nor Local: treated as Cluster", policy)
	return false
}

// Bounds and default of timeoutSeconds, as the API has them.
const (
	defaultAffinity = 3 * time.Hour
	maxAffinity     = 24 * time.Hour
)

func (s *service) parseAffinity(in Service) {
	switch in.SessionAffinity {
	case "", "None":
		return
	case "ClientIP":
	default:
		s.problem("spec.sessionAffinity", "%q is neither None nor ClientIP: treated as None", in.SessionAffinity)
		return
	}
	s.affinity = defaultAffinity
	if in.AffinityTimeout == nil {
		return
	}
	timeout := time.Duration(*in.AffinityTimeout) * time.Second
	if timeout <= 0 || timeout > maxAffinity {
		s.problem("spec.sessionAffinityConfig.clientIP.timeoutSeconds", "%d is not between 1 and %d: treated as %d",
			*in.AffinityTimeout, int(maxAffinity.Seconds()), int(defaultAffinity.Seconds()))
		return
	}
	s.affinity = timeout
}

func (s *service) parseAlgorithm(name string) {
	if name == "" {
		return
	}
	a, err := ParseAlgorithm(name)
	if err != nil {
		s.problem(fmt.Sprintf("metadata.annotations[%s]", AnnotationAlgorithm), "%v: the configuration decides", err)
		return
	}
	s.algorithm = &a
}

func (s *service) parseConnectionGrace(text string) {
	if text == "" {
		return
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		s.problem(fmt.Sprintf("metadata.annotations[%s]", AnnotationConnectionGrace),
			"%q is not a duration like \"30s\": the configuration decides", text)
		return
	}
	s.connectionGrace = &d
}

// parseSourceRanges notes who may connect to load-balancer addresses. A range that can't
// be read lets nobody in. As kube-proxy has it, ranges of one family alone say nothing
// about the other.
func (s *service) parseSourceRanges(ranges []string) {
	for i, text := range ranges {
		p, err := parsePrefix(text)
		if err != nil {
			s.problem(fmt.Sprintf("spec.loadBalancerSourceRanges[%d]", i), "%v", err)
			for f := range s.families {
				s.families[f].restricted = true
			}
			continue
		}
		f := &s.families[FamilyOf(p.Addr())]
		f.restricted = true
		f.sourceRanges = append(f.sourceRanges, p)
	}
	for f := range s.families {
		s.families[f].sourceRanges = prefixesOf(Family(f), s.families[f].sourceRanges)
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
