package explain

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/vmapd/vmapd/model"
)

func (x *explainer) explainDestination() {
	dest := x.d.Dest
	d := &x.e.Destination
	d.Address, d.Port, d.Protocol = dest.Addr().String(), dest.Port(), x.d.Protocol.String()
	d.Kind, d.Name = "none", x.in.Server
	if x.d.Frontend == nil {
		x.findServed()
		x.findUnserved()
		x.findOthers()
		return
	}
	d.Kind = kindNames[x.d.Frontend.Kind]
	if dest.Addr().IsLoopback() {
		d.Kind = "localhostNodePort"
	}
	name := x.d.Port.Name
	x.service = x.serviceOf(name)
	for _, s := range x.in.Objects.EndpointSlices {
		if s.Namespace == name.Namespace && s.Labels[model.LabelServiceName] == name.Name {
			x.slices = append(x.slices, s)
		}
	}
	d.Service = &ServicePort{
		Namespace: name.Namespace, Name: name.Name, Port: name.Port,
		Family: x.d.Port.Family.String(), Type: x.service.Type,
	}
	x.findRivals()
}

func (x *explainer) serviceOf(n model.ServicePortName) model.Service {
	for _, s := range x.in.Objects.Services {
		if s.NamespacedName == n.NamespacedName {
			return s
		}
	}
	return model.Service{}
}

// findRivals lists the service ports that claim the same address and port without success.
func (x *explainer) findRivals() {
	for _, who := range x.in.Builder.Claimants(x.d.Frontend.VIP)[1:] {
		x.e.Destination.Rivals = append(x.e.Destination.Rivals, Rival{
			Service: who.NamespacedName.String(), Port: who.Port,
			Younger: x.serviceOf(who).Created.After(x.service.Created),
		})
	}
}

func (x *explainer) found(f Finding) {
	x.e.Destination.Findings = append(x.e.Destination.Findings, f)
}

// findServed finds Services with the address and other ports, and with the node port and
// another protocol.
func (x *explainer) findServed() {
	dest := x.d.Dest
	var list []Finding
	for sp := range x.family.ServicePorts() {
		for _, fe := range sp.Frontends {
			if fe.Kind == model.NodePort && fe.VIP.Port == dest.Port() {
				x.findNodePort(sp, fe)
			}
			if fe.VIP.Addr != dest.Addr() {
				continue
			}
			service := sp.Name.NamespacedName.String()
			i := slices.IndexFunc(list, func(f Finding) bool { return f.Service == service })
			if i < 0 {
				i = len(list)
				list = append(list, Finding{Kind: OtherPort, Service: service, Role: kindNames[fe.Kind]})
			}
			list[i].Ports = append(list[i].Ports, portOf(sp, fe))
		}
	}
	for _, f := range list {
		slices.SortFunc(f.Ports, func(a, b Port) int {
			return cmp.Or(cmp.Compare(a.Port, b.Port), strings.Compare(a.Protocol, b.Protocol))
		})
		x.found(f)
	}
}

func portOf(sp *model.ServicePort, fe model.Frontend) Port {
	return Port{Name: sp.Name.Port, Port: int(fe.VIP.Port), Protocol: fe.VIP.Protocol.String()}
}

// findNodePort finds the reason why a node port does not answer.
func (x *explainer) findNodePort(sp *model.ServicePort, fe model.Frontend) {
	addr := x.d.Dest.Addr()
	f := Finding{
		Kind: NodePortElsewhere, Service: sp.Name.NamespacedName.String(), Ports: []Port{portOf(sp, fe)},
		Addresses: texts(x.family.NodePortAddrs), Role: kindNames[fe.Kind],
	}
	here := slices.Contains(x.family.NodePortAddrs, addr) || addr.IsLoopback() && x.family.Localhost
	switch {
	case fe.VIP.Protocol != x.d.Protocol && here:
		f.Kind = NodePortProtocol
	case fe.VIP.Protocol != x.d.Protocol:
		return
	case addr.IsLoopback() && x.family.Localhost && !x.d.Node:
		f.Kind = NodePortNotNode
	case addr.IsLoopback():
		f.Kind = NodePortLocalhost
	case x.nodeWith(addr) != "":
		f.Kind, f.Name, f.Addresses = OtherNodeAddr, x.nodeWith(addr), nil
	case !slices.Contains(x.family.NodeAddrs, addr):
		f.Kind = NodePortNotHere
	}
	x.found(f)
}

// findUnserved finds Services that have the address but do not answer there.
func (x *explainer) findUnserved() {
	addr := x.d.Dest.Addr()
	served := func(name model.NamespacedName) bool {
		return slices.ContainsFunc(x.e.Destination.Findings, func(f Finding) bool {
			return f.Kind == OtherPort && f.Service == name.String()
		})
	}
	for _, s := range x.in.Objects.Services {
		role, ingress := roleOf(s, addr)
		if role == "" || served(s.NamespacedName) {
			continue
		}
		kind, name := whyUnserved(s, addr, ingress)
		if why := x.in.Builder.Refused(s.NamespacedName, addr); why != "" {
			kind, name = Refused, why
		}
		x.found(Finding{Kind: kind, Service: s.NamespacedName.String(), Role: role, Name: name})
	}
}

// roleOf returns the role of an address in a Service and, for a load balancer's, the ingress.
func roleOf(s model.Service, a netip.Addr) (string, model.Ingress) {
	if hasAddr(s.ClusterIPs, a) {
		return kindNames[model.ClusterIP], model.Ingress{}
	}
	for _, in := range s.Ingress {
		if isAddr(in.IP, a) {
			return kindNames[model.LoadBalancerIP], in
		}
	}
	if hasAddr(s.ExternalIPs, a) {
		return kindNames[model.ExternalIP], model.Ingress{}
	}
	return "", model.Ingress{}
}

// HasAddress reports whether a Service has an address.
func HasAddress(s model.Service, a netip.Addr) bool {
	role, _ := roleOf(s, a)
	return role != ""
}

// whyUnserved returns why a Service does not answer on one of its addresses.
func whyUnserved(s model.Service, a netip.Addr, in model.Ingress) (FindingKind, string) {
	if proxy, ok := s.Labels[model.LabelServiceProxyName]; ok {
		return OtherProxy, proxy
	}
	ofFamily := func(text string) bool {
		ip, err := model.ParseAddr(text)
		return err == nil && model.FamilyOf(ip) == model.FamilyOf(a)
	}
	switch {
	case s.Type == "ExternalName":
		return ExternalName, ""
	case len(s.ClusterIPs) == 0 || s.ClusterIPs[0] == "" || s.ClusterIPs[0] == "None":
		return NoClusterIP, ""
	case !slices.ContainsFunc(s.ClusterIPs, ofFamily):
		return OtherFamily, ""
	case in.IPMode == "Proxy":
		return IPModeProxy, ""
	case len(s.Ports) == 0:
		return OtherPort, ""
	}
	return Unusable, ""
}

// findOthers finds other owners of the address: endpoints, Nodes and ServiceCIDRs.
func (x *explainer) findOthers() {
	addr := x.d.Dest.Addr()
	seen := map[string]bool{}
	x.findPod(addr, func(s model.EndpointSlice, e model.SliceEndpoint) {
		f := Finding{Kind: PodItself, Name: s.String(), NodeName: e.NodeName, State: state(e), Ports: portsOf(s)}
		if service := s.Labels[model.LabelServiceName]; service != "" {
			f.Service = s.Namespace + "/" + service
		}
		if !seen[f.Service] {
			seen[f.Service] = true
			f.Pod = x.in.Names.PodOf(s.NamespacedName, addr)
			x.found(f)
		}
	})
	// Those of a Service with this port first: the text has few of them.
	slices.SortStableFunc(x.e.Destination.Findings, func(a, b Finding) int { return cmp.Compare(x.others(a), x.others(b)) })
	if slices.Contains(x.family.NodeAddrs, addr) && len(x.e.Destination.Findings) == 0 {
		x.found(Finding{Kind: ThisNode, Name: x.in.Config.NodeName, Addresses: texts(x.family.NodePortAddrs)})
	}
	if n := x.nodeWith(addr); n != "" && len(x.e.Destination.Findings) == 0 {
		x.found(Finding{Kind: OtherNodeAddr, Name: n})
	}
	if x.d.Why != model.UnallocatedAddr {
		return
	}
	for _, c := range x.in.Objects.ServiceCIDRs {
		for _, text := range c.CIDRs {
			if p, err := model.ParsePrefix(text); err == nil && p.Contains(addr) {
				x.found(Finding{Kind: InServiceCIDR, Name: text})
			}
		}
	}
}

// others is 1 for a pod's Service without the port of the destination, and 0 otherwise.
func (x *explainer) others(f Finding) int {
	if f.Kind != PodItself || slices.ContainsFunc(f.Ports, func(p Port) bool { return p.Port == int(x.d.Dest.Port()) }) {
		return 0
	}
	return 1
}

func portsOf(s model.EndpointSlice) []Port {
	var list []Port
	for _, p := range s.Ports {
		list = append(list, Port{
			Name:     ptr.Deref(p.Name, ""),
			Port:     int(ptr.Deref(p.Port, 0)),
			Protocol: strings.ToLower(ptr.Deref(p.Protocol, "tcp")),
		})
	}
	return list
}
