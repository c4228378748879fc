package model

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// service is a checked Service, without the fields that can't be programmed. There are tens
// of thousands of them, so the fields that few have are apart.
type service struct {
	record  *record
	created int64 // seconds since 1970: the API has no parts of a second
	ports   []servicePort
	addrs   []serviceAddr // by kind, as frontends stand in a ServicePort
	rare    *rareParts    // not nil, but &noRareParts for most

	internalLocal, externalLocal bool // the traffic policies

	healthCheckNodePort uint16 // 0 means none
}

type servicePort struct {
	name     string
	protocol Protocol
	port     uint16
	nodePort uint16 // 0 means none
}

type serviceAddr struct {
	addr netip.Addr
	kind FrontendKind // up to ExternalIP
}

// rareParts are the fields that few Services have.
type rareParts struct {
	problems        []Problem
	affinity        time.Duration
	algorithm       *Algorithm     // nil: without annotation
	connectionGrace *time.Duration // likewise
	sources         [len(Families)]sources
}

// sources are the sources that may connect to load-balancer addresses.
type sources struct {
	restricted bool // to ranges
	ranges     []netip.Prefix
}

// noRareParts is shared by all Services without any. It is never written.
var noRareParts rareParts //nolint:gochecknoglobals // its address is what matters

// writable returns a Service's rare parts for writing.
func (s *service) writable() *rareParts {
	if s.rare == &noRareParts {
		s.rare = new(rareParts)
	}
	return s.rare
}

// clusterIP returns the cluster IP of a family, or the zero Addr: a Service without one is
// not in the family. The Service may be nil.
func (s *service) clusterIP(f Family) netip.Addr {
	if s != nil {
		for _, a := range s.addrs {
			if a.kind == ClusterIP && FamilyOf(a.addr) == f {
				return a.addr
			}
		}
	}
	return netip.Addr{}
}

// has reports whether a Service has a port of this name and protocol in a family. The
// Service may be nil.
func (s *service) has(f Family, port servicePort) bool {
	return s.clusterIP(f).IsValid() && slices.ContainsFunc(s.ports, func(p servicePort) bool {
		return p.name == port.name && p.protocol == port.protocol
	})
}

// portName returns the name of a port.
func (s *service) portName(p servicePort) ServicePortName {
	return ServicePortName{s.record.name, p.name, p.protocol}
}

// compareAges orders Services that claim the same address: the oldest wins, always.
func compareAges(a, b *service) int {
	return cmp.Or(cmp.Compare(a.created, b.created), compareNames(a.record.name, b.record.name))
}

func (s *service) problem(field, format string, args ...any) {
	rare := s.writable()
	rare.problems = append(rare.problems, Problem{
		Object:  ObjectRef{"Service", s.record.name},
		Field:   field,
		Message: fmt.Sprintf(format, args...),
	})
}

// parseService checks a Service, whose record is given. It returns nil for one that this
// proxy does not serve: headless, ExternalName, or another proxy's.
func parseService(in Service, r *record) *service {
	if _, other := in.Labels[LabelServiceProxyName]; other || in.Type == "ExternalName" {
		return nil
	}
	if len(in.ClusterIPs) == 0 || in.ClusterIPs[0] == "" || in.ClusterIPs[0] == "None" {
		return nil
	}
	s := &service{record: r, created: in.Created.Unix(), rare: &noRareParts}
	if err := checkName(in.NamespacedName); err != nil {
		s.problem("metadata.name", "%v", err)
		return s
	}
	s.parseAddrs(in)
	s.ports = make([]servicePort, 0, len(in.Ports))
	for i, p := range in.Ports {
		if field, err := s.parsePort(p); err != nil {
			s.problem(fmt.Sprintf("spec.ports[%d].%s", i, field), "%v", err)
		}
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
	s.addrs = make([]serviceAddr, 0, len(in.ClusterIPs)+len(in.Ingress)+len(in.ExternalIPs))
	for i, ip := range in.ClusterIPs {
		a, err := parseUnicast(ip)
		if err == nil && s.clusterIP(FamilyOf(a)).IsValid() {
			err = fmt.Errorf("a second %v cluster IP", FamilyOf(a))
		}
		if err != nil {
			s.problem(fmt.Sprintf("spec.clusterIPs[%d]", i), "%v", err)
			continue
		}
		s.addrs = append(s.addrs, serviceAddr{a, ClusterIP})
	}
	for i, ing := range in.Ingress {
		// A load balancer that is a proxy must see its own traffic (KEP-1860), and
		// one with only a host name has no address to capture.
		if ing.IP == "" || ing.IPMode == "Proxy" {
			continue
		}
		if err := s.addAddr(LoadBalancerIP, ing.IP); err != nil {
			s.problem(fmt.Sprintf("status.loadBalancer.ingress[%d].ip", i), "%v", err)
		}
	}
	for i, ip := range in.ExternalIPs {
		if err := s.addAddr(ExternalIP, ip); err != nil {
			s.problem(fmt.Sprintf("spec.externalIPs[%d]", i), "%v", err)
		}
	}
}

func (s *service) addAddr(kind FrontendKind, ip string) error {
	a, err := parseUnicast(ip)
	if err != nil {
		return err
	}
	// A load balancer's address is often repeated as an external IP.
	if !slices.ContainsFunc(s.addrs, func(other serviceAddr) bool { return other.addr == a }) {
		s.addrs = append(s.addrs, serviceAddr{a, kind})
	}
	return nil
}

// parsePort adds a port, or returns the field that is wrong.
func (s *service) parsePort(p Port) (field string, err error) {
	proto, err := ParseProtocol(p.Protocol)
	if err != nil {
		return "protocol", err
	}
	port, err := parsePort(p.Port)
	if err != nil {
		return "port", err
	}
	var nodePort uint16
	if p.NodePort != 0 {
		if nodePort, err = parsePort(p.NodePort); err != nil {
			return "nodePort", err
		}
	}
	if !isLabel(p.Name) && p.Name != "" {
		return "name", fmt.Errorf("%q is not a DNS label", p.Name)
	}
	for _, other := range s.ports {
		if other.name == p.Name && other.protocol == proto {
			return "name", fmt.Errorf("a second %s port with the name %q", strings.ToUpper(proto.String()), p.Name)
		}
	}
	s.ports = append(s.ports, servicePort{shared(p.Name), proto, port, nodePort})
	return "", nil
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
	rare := s.writable()
	rare.affinity = defaultAffinity
	if in.AffinityTimeout == nil {
		return
	}
	timeout := time.Duration(*in.AffinityTimeout) * time.Second
	if timeout <= 0 || timeout > maxAffinity {
		s.problem("spec.sessionAffinityConfig.clientIP.timeoutSeconds", "%d is not between 1 and %d: treated as %d",
			*in.AffinityTimeout, int(maxAffinity.Seconds()), int(defaultAffinity.Seconds()))
		return
	}
	rare.affinity = timeout
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
	s.writable().algorithm = &a
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
	s.writable().connectionGrace = &d
}

// parseSourceRanges sets the sources of load-balancer addresses. A range that can't be parsed
// allows none, but restricts both families. As with kube-proxy, ranges of one family do not
// restrict the other.
func (s *service) parseSourceRanges(ranges []string) {
	if len(ranges) == 0 {
		return
	}
	rare := s.writable()
	for i, text := range ranges {
		p, err := parsePrefix(text)
		if err != nil {
			s.problem(fmt.Sprintf("spec.loadBalancerSourceRanges[%d]", i), "%v", err)
			for f := range rare.sources {
				rare.sources[f].restricted = true
			}
			continue
		}
		f := &rare.sources[FamilyOf(p.Addr())]
		f.restricted = true
		f.ranges = append(f.ranges, p)
	}
	for f := range rare.sources {
		rare.sources[f].ranges = prefixesOf(Family(f), rare.sources[f].ranges)
	}
}

// wants yields all frontends that a Service asks for, before any decision.
func (s *service) wants() iter.Seq[Frontend] {
	return func(yield func(Frontend) bool) {
		for _, f := range Families {
			for _, p := range s.ports {
				for fe := range s.frontends(f, p) {
					if !yield(fe) {
						return
					}
				}
			}
		}
	}
}

// frontends yields the frontends that a port asks for in a family, cluster IP first.
func (s *service) frontends(f Family, p servicePort) iter.Seq[Frontend] {
	return func(yield func(Frontend) bool) {
		if !s.clusterIP(f).IsValid() {
			return // contract of the API: it is not in this family
		}
		for _, a := range s.addrs {
			if FamilyOf(a.addr) == f && !yield(Frontend{Kind: a.kind, VIP: VIP{a.addr, p.protocol, p.port}}) {
				return
			}
		}
		if p.nodePort != 0 {
			yield(Frontend{Kind: NodePort, VIP: VIP{f.Unspecified(), p.protocol, p.nodePort}})
		}
	}
}

// wanting yields the ports that ask for a VIP that the Service asks for. The first one gets
// it, if the Service does.
func (s *service) wanting(v VIP) iter.Seq[servicePort] {
	return func(yield func(servicePort) bool) {
		for _, p := range s.ports {
			number := p.port
			if v.Addr.IsUnspecified() {
				number = p.nodePort
			}
			if number == v.Port && p.protocol == v.Protocol && !yield(p) {
				return
			}
		}
	}
}
