package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
)

func (x *explainer) explainUnserved() {
	addr := x.d.Dest.Addr()
	for _, s := range x.in.Objects.Services {
		said := len(x.lines)
		x.sayNodePorts(s)
		if kind, in, ok := roleOf(s, addr); ok {
			x.line("%v is %s of Service %v, %s.", addr, roleTexts[kind], s, x.sayUnserved(s, in))
		}
		if len(x.lines) > said {
			x.about = append(x.about, model.ObjectRef{Kind: "Service", NamespacedName: s.NamespacedName})
		}
	}
	if x.sayOwners(); len(x.lines) == 0 {
		x.line("Neither a Service nor an EndpointSlice has the address %v.", addr)
	}
	x.step("%s belongs to no Service.", x.e.Dest)
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
func (x *explainer) sayNodePorts(s names.ServiceObject) {
	for _, p := range s.Ports {
		if p.NodePort != int32(x.d.Dest.Port()) {
			continue
		}
		on := cmp.Or(report.List(x.family.NodePortAddrs, 0), "no known address")
		if x.family.Localhost {
			on += ", and on loopback for processes of this node with tcp and udp"
		}
		p.Port = p.NodePort
		x.line("%s is the node port of Service %v; node ports of this node answer on %s (--nodeport-addresses).",
			names.PortText(p), s, on)
	}
}

func (x *explainer) sayUnserved(s names.ServiceObject, in model.Ingress) string {
	family := model.FamilyOf(x.d.Dest.Addr())
	isOfFamily := func(a netip.Addr) bool { return model.FamilyOf(a) == family }
	var ports []string
	has := false
	for _, p := range s.Ports {
		protocol, _ := model.ParseProtocol(p.Protocol)
		ports = append(ports, names.PortText(p))
		has = has || p.Port == int32(x.d.Dest.Port()) && protocol == x.d.Protocol
	}
	proxy, others := s.Labels[model.LabelServiceProxyName]
	switch {
	case others:
		return fmt.Sprintf("which the label %s=%s assigns to another proxy", model.LabelServiceProxyName, proxy)
	case s.Type == "ExternalName":
		return "of type ExternalName: it is only a name in DNS, and no proxy serves it"
	case len(s.ClusterIPs) == 0 || s.ClusterIPs[0] == "" || s.ClusterIPs[0] == "None":
		return "which has no cluster IP (headless): DNS returns the pods' own addresses, and no proxy serves it"
	case !slices.ContainsFunc(names.Addrs(s.ClusterIPs), isOfFamily):
		return fmt.Sprintf("which has no %v cluster IP, so it is not served over %[1]v", family)
	case in.IPMode == "Proxy":
		return "with ipMode Proxy: connections go to the load balancer itself, and nodes do not intercept them"
	case has:
		return "which is not served there: see its problems"
	}
	return fmt.Sprintf("which has no port %s; its ports: %s", x.port(), cmp.Or(strings.Join(ports, ", "), "none"))
}

// sayOwners names what has the address: endpoints, Nodes and ServiceCIDRs.
func (x *explainer) sayOwners() {
	addr, known := x.d.Dest.Addr(), len(x.lines) > 0
	x.sayEndpoint(addr, x.in.Objects.At(addr))
	switch n := x.in.Objects.NodeAt(addr); {
	case n != nil && n.Name != x.in.Config.NodeName:
		x.line("%v is an address of the node %s, which decides about the connection (--node-name %[2]s).", addr, n.Name)
	case slices.Contains(x.family.NodeAddrs, addr) && !known:
		x.line("%v is an address of this node, and no Service served on it has the node port %s.", addr, x.port())
	}
	for _, c := range x.in.Objects.ServiceCIDRs {
		for _, text := range c.CIDRs {
			if p, err := model.ParsePrefix(text); err == nil && p.Contains(addr) && x.d.Why == model.UnallocatedAddr {
				x.line("%v is in %s, a range of cluster IPs (ServiceCIDR).", addr, text)
				name := model.NamespacedName{Name: c.Name}
				x.about = append(x.about, model.ObjectRef{Kind: "ServiceCIDR", NamespacedName: name})
			}
		}
	}
}

func (x *explainer) sayEndpoint(addr netip.Addr, list []names.Endpoint) {
	var of []string
	for _, e := range list {
		name := e.Slice.Labels[model.LabelServiceName]
		if text := e.Slice.Namespace + "/" + name; name != "" && !slices.Contains(of, text) {
			of = append(of, text)
		}
	}
	who, services := "an endpoint", strings.Join(of[:min(len(of), maxRows)], ", ")
	if pod := x.in.Objects.PodAt(addr); pod != "" {
		who = "pod " + pod
	}
	if len(list) > 0 {
		x.line("%v is the own address of %s, on %s, in Services: %s. Connecting to it directly bypasses them.",
			addr, who, cmp.Or(list[0].NodeName, "an unknown node"), cmp.Or(services, "none"))
	}
}
