package model

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
)

// endpointSlice is a checked EndpointSlice.
type endpointSlice struct {
	name    string  // in the namespace of its Service
	version uint64  // 0: unknown
	record  *record // of its Service; nil: unknown, or the slice is not served
	family  Family
	ports   []slicePort // sorted by name and protocol
	// packed are the endpoints, of which there may be a million: of each the address, in 4 or
	// 16 bytes, and the conditions. See add and all.
	packed []byte
	// zones has the zones in each endpoint's hints, each between two lines' ends, as the node's own zone may change; ""
	// is none. It is empty if no endpoint has any.
	zones []string
}

type slicePort struct {
	name     string
	protocol Protocol
	port     uint16
}

// parseEndpointSlice checks an EndpointSlice. The Service is "" if this proxy does not serve the slice.
func parseEndpointSlice(
	in EndpointSlice, nodeName string,
) (s *endpointSlice, service string, found problemList) {
	s = &endpointSlice{name: in.Name, version: in.Version}
	if _, headless := in.Labels[LabelHeadless]; headless || in.AddressType == "FQDN" {
		return s, "", found
	}
	found.object = ObjectRef{"EndpointSlice", in.NamespacedName}
	switch in.AddressType {
	case "IPv4":
		s.family = IPv4
	case "IPv6":
		s.family = IPv6
	default:
		found.add("addressType", "%q is none of IPv4, IPv6, FQDN", in.AddressType)
		return s, "", found
	}
	if service = in.Labels[LabelServiceName]; service == "" {
		found.add("metadata.labels", "the label %s is missing: its Service is unknown", LabelServiceName)
		return s, "", found
	}
	s.ports = make([]slicePort, 0, len(in.Ports))
	for i, p := range in.Ports {
		if field, err := s.parsePort(p); err != nil {
			found.add(fmt.Sprintf("ports[%d].%s", i, field), "%v", err)
		}
	}
	slices.SortStableFunc(s.ports, compareSlicePorts) // of two with a name, the first counts
	s.packed = make([]byte, 0, len(in.Endpoints)*s.stride())
	for i, e := range in.Endpoints {
		s.parseEndpoint(i, e, nodeName, &found)
	}
	return s, service, found
}

// sharePorts takes the list of ports from another slice if it is the same. Those of a Service mostly have
// the same, and a Service may have thousands of slices with a thousand ports.
func (s *endpointSlice) sharePorts(with []*endpointSlice) {
	for _, o := range with {
		if slices.Equal(s.ports, o.ports) {
			s.ports = o.ports
			return
		}
	}
}

// parsePort adds a port, or returns the field that is wrong.
func (s *endpointSlice) parsePort(p SlicePort) (field string, err error) {
	// A port without number would mean "all ports", which no proxy serves. One without
	// name has the empty name, as the API's default says.
	name := ""
	if p.Name != nil {
		name = *p.Name
	}
	if p.Port == nil {
		return "port", errors.New("is missing")
	}
	port, err := parsePort(*p.Port)
	if err != nil {
		return "port", err
	}
	proto := TCP
	if p.Protocol != nil {
		if proto, err = ParseProtocol(*p.Protocol); err != nil {
			return "protocol", err
		}
	}
	s.ports = append(s.ports, slicePort{shared(name), proto, port})
	return "", nil
}

func (s *endpointSlice) parseEndpoint(i int, e SliceEndpoint, nodeName string, found *problemList) {
	if len(e.Addresses) == 0 {
		found.add(fmt.Sprintf("endpoints[%d].addresses", i), "is empty")
		return
	}
	// The others are not used since the API says that all must be interchangeable.
	a, err := parseUnicast(e.Addresses[0])
	if err == nil && FamilyOf(a) != s.family {
		err = fmt.Errorf("%q is not an %v address", e.Addresses[0], s.family)
	}
	if err != nil {
		found.add(fmt.Sprintf("endpoints[%d].addresses[0]", i), "%v", err)
		return
	}
	var c Conditions
	if e.Ready == nil || *e.Ready {
		c |= Ready
	}
	if e.Serving == nil || *e.Serving {
		c |= serving
	}
	if e.Terminating != nil && *e.Terminating {
		c |= Terminating
	}
	switch e.NodeName {
	case "":
	case nodeName:
		c |= OnThisNode
	default:
		c |= elsewhere
	}
	if len(e.HintNodes) > 0 {
		c |= HintsNodes
	}
	if slices.Contains(e.HintNodes, nodeName) {
		c |= hintsThisNode
	}
	s.add(a, c, e.HintZones)
}

// stride is the number of bytes of an endpoint in packed.
func (s *endpointSlice) stride() int {
	if s.family == IPv4 {
		return 4 + 1
	}
	return 16 + 1
}

func (s *endpointSlice) len() int { return len(s.packed) / s.stride() }

func (s *endpointSlice) add(a netip.Addr, c Conditions, zones []string) {
	s.packed, _ = a.AppendBinary(s.packed) // never fails; parseAddr refuses zones
	s.packed = append(s.packed, byte(c))

	if len(zones) == 0 && len(s.zones) == 0 {
		return
	}
	if len(s.zones) == 0 {
		s.zones = make([]string, s.len()-1, cap(s.packed)/s.stride())
	}
	hints := ""
	if len(zones) > 0 {
		hints = shared("\n" + strings.Join(zones, "\n") + "\n")
	}
	s.zones = append(s.zones, hints)
}

// all yields the endpoints, with their conditions on a node of a zone.
func (s *endpointSlice) all(zone string) iter.Seq2[netip.Addr, Conditions] {
	return func(yield func(netip.Addr, Conditions) bool) {
		i := 0
		for e := range slices.Chunk(s.packed, s.stride()) {
			last := len(e) - 1
			a, _ := netip.AddrFromSlice(e[:last])
			c := Conditions(e[last])
			if len(s.zones) > 0 && s.zones[i] != "" {
				c |= HintsZones
				if zone != "" && strings.Contains(s.zones[i], "\n"+zone+"\n") {
					c |= hintsThisZone
				}
			}
			if !yield(a, c) {
				return
			}
			i++
		}
	}
}

// port returns the port number of the slice's endpoints for a service port. It need not be
// the Service's targetPort: with a named one, it may differ from slice to slice.
func (s *endpointSlice) port(name string, protocol Protocol) (uint16, bool) {
	i, ok := slices.BinarySearchFunc(s.ports, slicePort{name: name, protocol: protocol}, compareSlicePorts)
	if !ok {
		return 0, false
	}
	return s.ports[i].port, true
}

func compareSlicePorts(a, b slicePort) int {
	return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.protocol, b.protocol))
}
