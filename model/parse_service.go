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
	s.parsePorts(in.Ports, budgets.Ports)
	s.parseAddrs(in, budgets.Frontends)
	s.internalLocal = s.parsePolicy("spec.internalTrafficPolicy", in.InternalTrafficPolicy)
	s.externalLocal = s.parsePolicy("spec.externalTrafficPolicy", in.ExternalTrafficPolicy)
	s.parseAffinity(in)
	s.parseAnnotations(in.Annotations)
	s.parseHealthCheck(in)
	s.parseSourceRanges(in.SourceRanges, budgets.SourceRanges)
	return s
}

// parseAddrs requires the ports.
func (s *service) parseAddrs(in Service, frontends int) {
	s.addrs = make([]serviceAddr, 0, min(frontends, len(in.ClusterIPs)+len(in.Ingress)+len(in.ExternalIPs)))
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
	most, known := s.mostAddrs(frontends), map[netip.Addr]bool{}
	for _, a := range s.addrs {
		known[a.addr] = true
	}
	// add reports whether there is room for others.
	add := func(kind FrontendKind, ip, field string) bool {
		a, err := parseUnicast(ip)
		switch {
		case err != nil:
			s.problems().add(field, "%v", err)
		case known[a]: // a load balancer's address is often repeated as an external IP
		case len(s.addrs) >= most:
			s.problems().over(FrontendsBudget, field,
				"more than %d frontends (addresses times ports): this address and those after it are not served", frontends)
			return false
		default:
			known[a] = true
			s.addrs = append(s.addrs, serviceAddr{addr: a, kind: kind})
		}
		return true
	}
	for i, ing := range in.Ingress {
		// A load balancer that is a proxy must see its own traffic (KEP-1860), and
		// one with only a host name has no address to capture.
		if ing.IP == "" || ing.IPMode == "Proxy" {
			continue
		}
		if !add(LoadBalancerIP, ing.IP, fmt.Sprintf("status.loadBalancer.ingress[%d].ip", i)) {
			return
		}
	}
	for i, ip := range in.ExternalIPs {
		if !add(ExternalIP, ip, fmt.Sprintf("spec.externalIPs[%d]", i)) {
			return
		}
	}
}

// mostAddrs returns the number of addresses that a number of frontends allows. Cluster IPs do not depend on it.
func (s *service) mostAddrs(frontends int) int {
	for _, p := range s.ports {
		if p.nodePort != 0 {
			frontends--
		}
	}
	return max(0, frontends/max(1, len(s.ports)))
}

func (s *service) parsePorts(ports []Port, most int) {
	if len(ports) > most {
		s.problems().over(PortsBudget, fmt.Sprintf("spec.ports[%d]", most),
			"more than %d ports: this one and those after it are not served", most)
		ports = ports[:most]
	}
	s.ports = make([]servicePort, 0, len(ports))
	names, numbers, nodePorts := map[portKey]bool{}, map[VIP]bool{}, map[VIP]bool{}
	for i, in := range ports {
		p, field, err := parseServicePort(in)
		if err == nil && names[p.key()] {
			field, err = "name", fmt.Errorf("a second %s port with the name %q", strings.ToUpper(p.protocol.String()), p.name)
		}
		if err != nil {
			s.problems().add(fmt.Sprintf("spec.ports[%d].%s", i, field), "%v", err)
			continue
		}
		number, nodePort := VIP{Protocol: p.protocol, Port: p.port}, VIP{Protocol: p.protocol, Port: p.nodePort}
		p.portTaken, p.nodePortTaken = numbers[number], p.nodePort != 0 && nodePorts[nodePort]
		names[p.key()], numbers[number], nodePorts[nodePort] = true, true, true
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

// parseSourceRanges sets the sources of load-balancer addresses. A range that can't be parsed
// allows none, but restricts both families. As with kube-proxy, ranges of one family do not
// restrict the other. Over the budget, none is allowed.
func (s *service) parseSourceRanges(ranges []string, most int) {
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
		if len(sources.ranges)*s.restrictable(f) > most {
			s.problems().over(SourceRangesBudget, "spec.loadBalancerSourceRanges",
				"more than %d %v source ranges times frontends of the load balancer: all connections to these are dropped", most, f)
			sources.ranges = nil
		}
	}
}

// restrictable returns the number of frontends of a family that source ranges apply to.
func (s *service) restrictable(f Family) int {
	n := 0
	for _, a := range s.addrs {
		if a.kind == LoadBalancerIP && FamilyOf(a.addr) == f {
			n += len(s.ports)
		}
	}
	return n
}
