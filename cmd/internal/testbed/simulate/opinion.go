package simulate

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"

	netutils "k8s.io/utils/net"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// offer is an endpoint as EndpointSlices offer it to a service port.
type offer struct{ ready, draining, here, terminating bool }

// offers returns the endpoints that slices offer a service port in one family. Of an address, those that terminate are
// left out beside one that does not.
func (s *server) offers(f model.Family, name model.ServicePortName, node string) map[netip.AddrPort]offer {
	list := map[netip.AddrPort]offer{}
	is := func(field *bool, otherwise bool) bool { return *cmp.Or(field, &otherwise) }
	for _, o := range s.all("endpointslices") {
		slice := o.(modeltest.Slice).EndpointSlice
		_, headless := slice.Labels[model.LabelHeadless]
		port := numberOf(slice.Ports, name)
		if slice.Namespace != name.Namespace || slice.Labels[model.LabelServiceName] != name.NamespacedName.Name ||
			slice.AddressType != f.String() || headless || port == 0 {
			continue
		}
		for _, e := range slice.Endpoints {
			if len(e.Addresses) == 0 {
				continue
			}
			// The API admits leading zeros.
			addr, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(e.Addresses[0]))
			addr = addr.Unmap()
			special := addr.IsUnspecified() || addr.IsLoopback() || addr.IsMulticast()
			if !ok || model.FamilyOf(addr) != f || special {
				continue
			}
			at := netip.AddrPortFrom(addr, port)
			was, known := list[at]
			now := offer{ready: is(e.Ready, true), here: e.NodeName == node, terminating: is(e.Terminating, false)}
			now.draining = now.terminating && is(e.Serving, true)
			switch {
			case !known || was.terminating && !now.terminating:
				list[at] = now
			case was.terminating == now.terminating:
				list[at] = offer{was.ready || now.ready, was.draining || now.draining, was.here || now.here, now.terminating}
			}
		}
	}
	return list
}

// numberOf returns the number of the first valid port of a slice that is a service port's; 0: there is none.
func numberOf(ports []model.SlicePort, of model.ServicePortName) uint16 {
	or := func(field *string, otherwise string) string { return *cmp.Or(field, &otherwise) }
	for _, p := range ports {
		parsed, err := model.ParseProtocol(or(p.Protocol, "TCP"))
		if or(p.Name, "") != of.Port || err != nil || parsed != of.Protocol {
			continue
		}
		if p.Port != nil && *p.Port > 0 && *p.Port <= math.MaxUint16 {
			return uint16(*p.Port)
		}
	}
	return 0
}

// wrongEndpoint names an endpoint of a service port that the slices do not offer, that is not on the node although it
// must be, or that is about to end while another one is ready; "": none. It is a second opinion on the model's choice,
// on which rules and the oracle of packets both rest.
func (w *world) wrongEndpoint(f model.Family, sp *model.ServicePort) string {
	offers := w.server.offers(f, sp.Name, w.node.Config.NodeName)
	for _, l := range model.TrafficPolicies {
		var ready bool
		for _, o := range offers {
			ready = ready || o.ready && (o.here || l == model.Cluster)
		}
		for e := range sp.In(l) {
			switch o := offers[e.Addr]; {
			case !o.ready && !o.draining:
				return fmt.Sprintf("%v: no slice says that %v is ready or serves", sp.Name, e.Addr)
			case l == model.Local && !o.here:
				return fmt.Sprintf("%v: %v is not on this node", sp.Name, e.Addr)
			case !o.ready && ready:
				return fmt.Sprintf("%v: %v is about to end, and another one is ready", sp.Name, e.Addr)
			}
		}
	}
	return ""
}
