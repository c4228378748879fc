package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/model"
)

// explainUnserved explains a destination that belongs to no Service that is served.
func (x *explainer) explainUnserved() {
	var lines []string
	for _, s := range x.in.Objects.Services {
		said := x.sayNodePorts(s)
		if kind, in, ok := roleOf(s, x.d.Dest.Addr()); ok {
			said = append(said, fmt.Sprintf("%v is %s of Service %v, %s.", x.d.Dest.Addr(), roleTexts[kind], s, x.sayUnserved(s, in)))
		}
		if len(said) > 0 {
			x.about = append(x.about, model.ObjectRef{Kind: "Service", NamespacedName: s.NamespacedName})
		}
		lines = append(lines, said...)
	}
	if lines = append(lines, x.sayOwners(len(lines) > 0)...); len(lines) == 0 {
		lines = []string{fmt.Sprintf("Neither a Service nor an EndpointSlice has the address %v.", x.d.Dest.Addr())}
	}
	x.step(x.e.Dest+" belongs to no Service.", lines...)
}

// roleOf returns the role of an address in a Service and, for a load balancer's, the ingress.
func roleOf(s names.ServiceObject, a netip.Addr) (model.FrontendKind, model.Ingress, bool) {
	if names.Has(s.ClusterIPs, a) {
		return model.ClusterIP, model.Ingress{}, true
	}
	for _, in := range s.Ingress {
		if names.Has([]string{in.IP}, a) {
			return model.LoadBalancerIP, in, true
		}
	}
	return model.ExternalIP, model.Ingress{}, names.Has(s.ExternalIPs, a)
}

// sayNodePorts says that a Service has the destination's port as a node port, which does not answer at its address.
func (x *explainer) sayNodePorts(s names.ServiceObject) (said []string) {
	for _, p := range s.Ports {
		if p.NodePort != int32(x.d.Dest.Port()) {
			continue
		}
		on := cmp.Or(texts(x.family.NodePortAddrs), "no known address")
		if x.family.Localhost {
			on += ", and on loopback for processes of this node with tcp and udp"
		}
		protocol, _ := model.ParseProtocol(p.Protocol)
		said = append(said, fmt.Sprintf("%s is the node port of Service %v; node ports of this node answer on %s (--nodeport-addresses).",
			names.PortText(p.Name, p.NodePort, protocol.String()), s, on))
	}
	return said
}

// sayUnserved says why a Service does not answer at one of its addresses.
func (x *explainer) sayUnserved(s names.ServiceObject, in model.Ingress) string {
	family := model.FamilyOf(x.d.Dest.Addr())
	isOther := func(text string) bool {
		ip, err := model.ParseAddr(text)
		return err != nil || model.FamilyOf(ip) != family
	}
	var ports []string
	has := false
	for _, p := range s.Ports {
		protocol, _ := model.ParseProtocol(p.Protocol)
		ports = append(ports, names.PortText(p.Name, p.Port, protocol.String()))
		has = has || p.Port == int32(x.d.Dest.Port()) && protocol == x.d.Protocol
	}
	proxy, others := s.Labels[model.LabelServiceProxyName]
	switch {
	case others:
		return fmt.Sprintf("whose label %s=%s assigns it to another proxy", model.LabelServiceProxyName, proxy)
	case s.Type == "ExternalName":
		return "whose type is ExternalName: it is only a name in DNS, and no proxy serves it"
	case len(s.ClusterIPs) == 0 || s.ClusterIPs[0] == "" || s.ClusterIPs[0] == "None":
		return "which has no cluster IP (headless): DNS returns the pods' own addresses, and no proxy serves it"
	case !slices.ContainsFunc(s.ClusterIPs, func(text string) bool { return !isOther(text) }):
		return fmt.Sprintf("which has no %v cluster IP, so it is not served over %[1]v", family)
	case in.IPMode == "Proxy":
		return "with ipMode Proxy: connections go to the load balancer itself, and nodes do not intercept them"
	case has:
		return "which is not served there: see its problems"
	}
	return fmt.Sprintf("which has no port %d/%v; its ports: %s", x.d.Dest.Port(), x.d.Protocol,
		cmp.Or(strings.Join(ports, ", "), "none"))
}

// sayOwners names what has the address: endpoints, Nodes and ServiceCIDRs.
func (x *explainer) sayOwners(known bool) (lines []string) {
	addr := x.d.Dest.Addr()
	if list := x.in.Objects.At(addr); len(list) > 0 {
		lines = append(lines, x.sayEndpoint(addr, list))
	}
	switch n := x.in.Objects.NodeAt(addr); {
	case n != nil && n.Name != x.in.Config.NodeName:
		lines = append(lines, fmt.Sprintf("%v is an address of the node %s, which decides about the connection (--node-name %[2]s).", addr, n.Name))
	case slices.Contains(x.family.NodeAddrs, addr) && !known:
		lines = append(lines, fmt.Sprintf("%v is an address of this node, and no Service served on it has the node port %d/%v.",
			addr, x.d.Dest.Port(), x.d.Protocol))
	}
	for _, c := range x.in.Objects.ServiceCIDRs {
		for _, text := range c.CIDRs {
			if p, err := model.ParsePrefix(text); err == nil && p.Contains(addr) && x.d.Why == model.UnallocatedAddr {
				lines = append(lines, fmt.Sprintf("%v is in %s, a range of cluster IPs (ServiceCIDR).", addr, text))
				x.about = append(x.about, model.ObjectRef{Kind: "ServiceCIDR", NamespacedName: model.NamespacedName{Name: c.Name}})
			}
		}
	}
	return lines
}

// sayEndpoint says that an address is an endpoint's own.
func (x *explainer) sayEndpoint(addr netip.Addr, list []names.Endpoint) string {
	var of []string
	for _, e := range list {
		name := e.Slice.Labels[model.LabelServiceName]
		if text := e.Slice.Namespace + "/" + name; name != "" && !slices.Contains(of, text) {
			of = append(of, text)
		}
	}
	who := "an endpoint"
	if pod := x.in.Objects.PodAt(addr); pod != "" {
		who = "pod " + pod
	}
	services := strings.Join(of[:min(len(of), maxRows)], ", ")
	return fmt.Sprintf("%v is the own address of %s, on %s, in Services: %s. Connecting to it directly bypasses them.",
		addr, who, cmp.Or(list[0].NodeName, "an unknown node"), cmp.Or(services, "none"))
}
