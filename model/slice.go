package model

import (
	"fmt"
	"net/netip"
	"slices"
)

// endpointSlice is an EndpointSlice after checking.
type endpointSlice struct {
	name      NamespacedName
	service   NamespacedName
	family    Family
	ports     []slicePort
	endpoints []sliceEndpoint
	problems  []Problem
}

type slicePort struct {
	name     string
	protocol Protocol
	port     uint16
}

type sliceEndpoint struct {
	addr netip.Addr
	conditions
	zones *zoneHints // shared with the endpoints before that have the same; nil: none
}

// zoneHints are kept, as the node's zone may change.
type zoneHints []string

func (s *endpointSlice) problem(field, format string, args ...any) {
	s.problems = append(s.problems, Problem{
		Object:  ObjectRef{"EndpointSlice", s.name},
		Field:   field,
		Message: fmt.Sprintf(format, args...),
	})
}

// parseEndpointSlice checks an EndpointSlice. It returns nil for one that is not
// this proxy's business. A slice without service belongs to the zero name.
func parseEndpointSlice(in EndpointSlice, nodeName string) *endpointSlice {
	s := &endpointSlice{name: in.NamespacedName}
	if _, ok := in.Labels[LabelServiceProxyName]; ok {
		return nil
	}
	if _, ok := in.Labels[LabelHeadless]; ok {
		return nil
	}
	switch in.AddressType {
	case "IPv4":
		s.family = IPv4
	case "IPv6":
		s.family = IPv6
	case "FQDN":
		return nil
	default:
		s.problem("addressType", "%q is none of IPv4, IPv6, FQDN", in.AddressType)
		return s
	}
	service := in.Labels[LabelServiceName]
	if service == "" {
		s.problem("metadata.labels", "the label %s is missing: nobody knows whose endpoints these are", LabelServiceName)
		return s
	}
	s.service = NamespacedName{in.Namespace, service}
	for i, p := range in.Ports {
		s.parsePort(fmt.Sprintf("ports[%d]", i), p)
	}
	s.endpoints = make([]sliceEndpoint, 0, len(in.Endpoints))
	for i, e := range in.Endpoints {
		s.parseEndpoint(i, e, nodeName)
	}
	return s
}

func (s *endpointSlice) parsePort(field string, p SlicePort) {
	// A port without number would mean "all ports", which no proxy serves. One without
	// name has the empty name, as the API's default says.
	name := ""
	if p.Name != nil {
		name = *p.Name
	}
	if p.Port == nil {
		s.problem(field+".port", "is missing")
		return
	}
	port, err := parsePort(*p.Port)
	if err != nil {
		s.problem(field+".port", "%v", err)
		return
	}
	proto := TCP
	if p.Protocol != nil {
		if proto, err = ParseProtocol(*p.Protocol); err != nil {
			s.problem(field+".protocol", "%v", err)
			return
		}
	}
	s.ports = append(s.ports, slicePort{name, proto, port})
}

func (s *endpointSlice) parseEndpoint(i int, e SliceEndpoint, nodeName string) {
	if len(e.Addresses) == 0 {
		s.problem(fmt.Sprintf("endpoints[%d].addresses", i), "is empty")
		return
	}
	// The others are not used since the API says that all must be interchangeable.
	a, err := parseUnicast(e.Addresses[0])
	if err == nil && FamilyOf(a) != s.family {
		err = fmt.Errorf("%q is not an %v address", e.Addresses[0], s.family)
	}
	if err != nil {
		s.problem(fmt.Sprintf("endpoints[%d].addresses[0]", i), "%v", err)
		return
	}
	var c conditions
	if e.Ready == nil || *e.Ready {
		c |= ready
	}
	if e.Serving == nil || *e.Serving {
		c |= serving
	}
	if c.has(serving) && e.Terminating != nil && *e.Terminating {
		c |= draining
	}
	if e.NodeName != "" && e.NodeName == nodeName {
		c |= local
	}
	if len(e.HintNodes) > 0 {
		c |= hintsNodes
	}
	if slices.Contains(e.HintNodes, nodeName) {
		c |= hintsThisNode
	}
	s.endpoints = append(s.endpoints, sliceEndpoint{a, c, s.zoneHints(e.HintZones)})
}

func (s *endpointSlice) zoneHints(zones []string) *zoneHints {
	if len(zones) == 0 {
		return nil
	}
	if n := len(s.endpoints); n > 0 {
		if last := s.endpoints[n-1].zones; last != nil && slices.Equal(*last, zones) {
			return last
		}
	}
	hints := zoneHints(slices.Clone(zones))
	return &hints
}

// in returns what is known about an endpoint on a node of a zone.
func (e *sliceEndpoint) in(zone string) conditions {
	c := e.conditions
	if e.zones != nil {
		c |= hintsZones
		if zone != "" && slices.Contains(*e.zones, zone) {
			c |= hintsThisZone
		}
	}
	return c
}

// port returns the number under which the slice's endpoints serve a service port.
// The Service's targetPort has no say: the number in the slice may differ from pod
// to pod.
func (s *endpointSlice) port(n ServicePortName) (uint16, bool) {
	for _, p := range s.ports {
		if p.name == n.Port && p.protocol == n.Protocol {
			return p.port, true
		}
	}
	return 0, false
}
