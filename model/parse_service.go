package model

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// parseService checks the Service of a record. It returns nil for one that this proxy does not serve: headless,
// ExternalName, or another proxy's.
func parseService(in Service, r *record, budgets Budgets) *service {
	if _, other := in.Labels[LabelServiceProxyName]; other || in.Type == "ExternalName" {
		return nil
	}
	if len(in.ClusterIPs) == 0 || in.ClusterIPs[0] == "" || in.ClusterIPs[0] == "None" {
		return nil
	}
	s := &service{record: r, uid: in.UID, created: in.Created.Unix(), rare: &noRareParts}
	if field, err := checkName(in.NamespacedName); err != nil {
		s.problems().add(field, "%v", err)
		return s
	}
	if in.SessionAffinity == "ClientIP" && len(in.Ports) > budgets.Ports {
		s.problems().over(PortsBudget, fmt.Sprintf("spec.ports[%d]", budgets.Ports),
			"more than %d ports with session affinity: this one and those after it are not served", budgets.Ports)
		in.Ports = in.Ports[:budgets.Ports]
	}
	s.parsePorts(in.Ports)
	s.parseAddrs(in, budgets.Entries)
	s.internalLocal = s.parsePolicy("spec.internalTrafficPolicy", in.InternalTrafficPolicy)
	s.externalLocal = s.parsePolicy("spec.externalTrafficPolicy", in.ExternalTrafficPolicy)
	s.parseAffinity(in)
	s.parseAnnotations(in.Annotations)
	s.parseHealthCheck(in)
	s.parseSourceRanges(in.SourceRanges)
	return s
}

// frontendEntries is the least that a frontend of a load balancer or an external IP uses of Budgets.Entries: it is in
// several maps.
const frontendEntries = 3

// parseAddrs requires the ports. Of each family, it takes more addresses than that budget serves, but not all: others
// may ask for them.
func (s *service) parseAddrs(in Service, entries int) {
	for i, ip := range in.ClusterIPs {
		a, err := parseUnicast(ip)
		if err == nil && s.clusterIP(FamilyOf(a)).IsValid() {
			err = fmt.Errorf("a second %v cluster IP", FamilyOf(a))
		}
		if err != nil {
			s.problems().add(fmt.Sprintf("spec.clusterIPs[%d]", i), "%v", err)
			continue
		}
		s.addrs = append(s.addrs, serviceAddr{addr: a, kind: ClusterIP})
	}
	if len(in.Ingress)+len(in.ExternalIPs) == 0 {
		return
	}
	most, known := 2+entries/(frontendEntries*max(1, len(s.ports))), map[netip.Addr]bool{}
	var count [len(Families)]int
	for _, a := range s.addrs {
		known[a.addr] = true
	}
	add := func(kind FrontendKind, ip, field string) {
		a, err := parseUnicast(ip)
		switch {
		case err != nil:
			s.problems().add(field, "%v", err)
		case !known[a] && count[FamilyOf(a)] < most: // a load balancer's address is often repeated as an external IP
			known[a] = true
			count[FamilyOf(a)]++
			s.addrs = append(s.addrs, serviceAddr{addr: a, kind: kind})
		}
	}
	for i, ing := range in.Ingress {
		// A load balancer that is a proxy must see its own traffic (KEP-1860), and
		// one with only a host name has no address to capture.
		if ing.IP == "" || ing.IPMode == "Proxy" {
			continue
		}
		add(LoadBalancerIP, ing.IP, fmt.Sprintf("status.loadBalancer.ingress[%d].ip", i))
	}
	for i, ip := range in.ExternalIPs {
		add(ExternalIP, ip, fmt.Sprintf("spec.externalIPs[%d]", i))
	}
}

func (s *service) parsePorts(ports []Port) {
	s.ports = make([]servicePort, 0, len(ports))
	names, taken := map[portKey]bool{}, map[VIP]bool{}
	for i, in := range ports {
		p, field, err := parseServicePort(in)
		number, nodePort := VIP{Protocol: p.protocol, Port: p.port}, VIP{IPv4.Unspecified(), p.protocol, p.nodePort}
		protocol := strings.ToUpper(p.protocol.String())
		switch {
		case err != nil:
		case names[p.key()]:
			field, err = "name", fmt.Errorf("a second %s port with the name %q", protocol, p.name)
		case taken[number]:
			field, err = "port", fmt.Errorf("a second %s port with the number %d", protocol, p.port)
		case p.nodePort != 0 && taken[nodePort]:
			field, err = "nodePort", fmt.Errorf("a second %s port with the node port %d", protocol, p.nodePort)
		}
		if err != nil {
			s.problems().add(fmt.Sprintf("spec.ports[%d].%s", i, field), "%v", err)
			continue
		}
		names[p.key()], taken[number], taken[nodePort] = true, true, true
		s.ports = append(s.ports, p)
	}
}

// parseServicePort returns a port, or the field that is wrong.
func parseServicePort(in Port) (p servicePort, field string, err error) {
	if p.protocol, err = ParseProtocol(in.Protocol); err != nil {
		return p, "protocol", err
	}
	if p.port, err = parsePort(in.Port); err != nil {
		return p, "port", err
	}
	if in.NodePort != 0 {
		if p.nodePort, err = parsePort(in.NodePort); err != nil {
			return p, "nodePort", err
		}
	}
	if in.Name != "" {
		if err := checkLabel(in.Name); err != nil {
			return p, "name", err
		}
	}
	p.name = shared(in.Name)
	return p, "", nil
}

// parsePolicy reports whether a traffic policy is Local.
func (s *service) parsePolicy(field, policy string) bool {
	switch policy {
	case "", "Cluster":
		return false
	case "Local":
		return true
	}
	s.problems().add(field, "%q is neither Cluster nor Local: treated as Cluster", policy)
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
		s.problems().add("spec.sessionAffinity", "%q is neither None nor ClientIP: treated as None", in.SessionAffinity)
		return
	}
	rare := s.writable()
	rare.affinity = defaultAffinity
	if in.AffinityTimeout == nil {
		return
	}
	timeout := time.Duration(*in.AffinityTimeout) * time.Second
	if timeout <= 0 || timeout > maxAffinity {
		s.problems().add("spec.sessionAffinityConfig.clientIP.timeoutSeconds", "%d is not between 1 and %d: treated as %d",
			*in.AffinityTimeout, int(maxAffinity.Seconds()), int(defaultAffinity.Seconds()))
		return
	}
	rare.affinity = timeout
}

// parseAnnotations reads the annotations of a Service. An empty value is none.
func (s *service) parseAnnotations(values map[string]string) {
	for _, a := range Annotations {
		value := values[a.Name]
		if value == "" {
			continue
		}
		problems, field := s.problems(), fmt.Sprintf("metadata.annotations[%s]", a.Name)
		switch note, err := a.parse(&s.writable().annotated, value); {
		case err != nil:
			problems.add(field, "%v: %s", err, a.Otherwise)
		case note != "":
			problems.add(field, "%s", note)
		}
	}
}

func (s *service) parseHealthCheck(in Service) {
	if in.HealthCheckNodePort == 0 || in.Type != "LoadBalancer" || !s.externalLocal {
		return
	}
	port, err := parsePort(in.HealthCheckNodePort)
	if err != nil {
		s.problems().add("spec.healthCheckNodePort", "%v", err)
		return
	}
	s.healthCheckNodePort = port
}

// mostSourceRanges is the number of source ranges of a family times the number of frontends with addresses of load
// balancers. Over it, none is allowed: some of the ranges would refuse some of the clients, and no range would admit
// everybody. The kernel's time for them grows with their square.
const mostSourceRanges = 4000

// parseSourceRanges sets the sources of load-balancer addresses. A range that can't be parsed
// allows none, but restricts both families. As with kube-proxy, ranges of one family do not
// restrict the other.
func (s *service) parseSourceRanges(ranges []string) {
	if len(ranges) == 0 {
		return
	}
	rare := s.writable()
	for i, text := range ranges {
		p, err := ParsePrefix(text)
		if err != nil {
			s.problems().add(fmt.Sprintf("spec.loadBalancerSourceRanges[%d]", i), "%v", err)
			for f := range rare.sources {
				rare.sources[f].restricted = true
			}
			continue
		}
		f := &rare.sources[FamilyOf(p.Addr())]
		f.restricted = true
		f.ranges = append(f.ranges, p)
	}
	for i := range rare.sources {
		f, sources := Family(i), &rare.sources[i]
		sources.ranges = prefixesOf(f, sources.ranges)
		frontends := 0
		for _, a := range s.addrs {
			if a.kind == LoadBalancerIP && FamilyOf(a.addr) == f {
				frontends += len(s.ports)
			}
		}
		if len(sources.ranges)*frontends > mostSourceRanges {
			s.problems().over(EntriesBudget, "spec.loadBalancerSourceRanges",
				"more than %d %v source ranges times frontends of the load balancer: all connections to these are dropped",
				mostSourceRanges, f)
			sources.ranges = nil
		}
	}
}
