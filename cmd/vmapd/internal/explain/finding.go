package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/vmapd/vmapd/model"
)

// finding is a possible explanation if the destination belongs to no Service.
type finding struct {
	service model.NamespacedName // that it is about; the zero value: none
	text    string
	advice  string
	names   bool // the text begins with the Service that has the address; before others comes that there is none
	rank    int  // those with a lower one come first
}

func (x *explainer) add(f finding) { x.found = append(x.found, f) }

// find explains a destination that belongs to no Service.
func (x *explainer) find() {
	x.findServed()
	x.findUnserved()
	x.findOthers()
	var said []string
	for _, f := range x.found {
		said = append(said, f.text)
		if f.advice != "" {
			x.next("%s", f.advice)
		}
	}
	switch {
	case len(said) == 0:
		said = []string{fmt.Sprintf("Neither a Service nor an EndpointSlice has the address %v.", x.d.Dest.Addr())}
	case !x.found[0].names:
		said = append([]string{x.e.Dest + " belongs to no Service."}, said...)
	}
	x.step(said[0], said[1:]...)
}

// findServed finds Services with the address and other ports, and with the node port.
func (x *explainer) findServed() {
	dest := x.d.Dest
	byService := map[model.NamespacedName][]model.Frontend{}
	var order []model.NamespacedName
	portNames := map[model.VIP]string{}
	for sp := range x.family.ServicePorts() {
		for _, fe := range sp.Frontends {
			if fe.Kind == model.NodePort && fe.VIP.Port == dest.Port() {
				x.findNodePort(sp, fe)
			}
			if name := sp.Name.NamespacedName; fe.VIP.Addr == dest.Addr() {
				if byService[name] == nil {
					order = append(order, name)
				}
				byService[name], portNames[fe.VIP] = append(byService[name], fe), sp.Name.Port
			}
		}
	}
	for _, name := range order {
		list := byService[name]
		slices.SortFunc(list, func(a, b model.Frontend) int {
			return cmp.Or(cmp.Compare(a.VIP.Port, b.VIP.Port), strings.Compare(a.VIP.Protocol.String(), b.VIP.Protocol.String()))
		})
		var ports []string
		for _, fe := range list {
			ports = append(ports, portText(portNames[fe.VIP], int(fe.VIP.Port), fe.VIP.Protocol.String()))
		}
		all := strings.Join(ports, ", ")
		text := fmt.Sprintf(", but the Service has no port %d/%v there; its ports are %s.", dest.Port(), x.d.Protocol, all)
		i := slices.IndexFunc(list, func(fe model.Frontend) bool { return fe.VIP.Port == dest.Port() })
		if i >= 0 {
			text = fmt.Sprintf(", which has port %d for %v, not for %v. Its ports there: %s.", dest.Port(), list[i].VIP.Protocol, x.d.Protocol, all)
		}
		x.add(finding{service: name, names: true, text: x.has(list[0].Kind, name) + text})
	}
}

// has begins a sentence about a Service that has the address.
func (x *explainer) has(kind model.FrontendKind, name model.NamespacedName) string {
	return fmt.Sprintf("%v is %s of Service %v", x.d.Dest.Addr(), roleTexts[kind], name)
}

// portText names a port of a Service or a slice; 0 if a slice has no number.
func portText(name string, port int, protocol string) string {
	text := fmt.Sprintf("%d/%s", port, protocol)
	if port == 0 {
		text = "no number, " + protocol
	}
	if name != "" {
		return fmt.Sprintf("%q (%s)", name, text)
	}
	return text
}

// findNodePort finds the reason why a node port does not answer.
func (x *explainer) findNodePort(sp *model.ServicePort, fe model.Frontend) {
	addr, on := x.d.Dest.Addr(), cmp.Or(texts(x.family.NodePortAddrs), "no known address")
	f := finding{service: sp.Name.NamespacedName, names: true}
	is := fmt.Sprintf("%s is the node port of Service %v", portText(sp.Name.Port, int(fe.VIP.Port), fe.VIP.Protocol.String()), f.service)
	here := slices.Contains(x.family.NodePortAddrs, addr) || addr.IsLoopback() && x.family.Localhost
	other := x.nodeWith(addr)
	switch {
	case fe.VIP.Protocol != x.d.Protocol && here:
		f.text = fmt.Sprintf("%s, but %d/%v is not.", is, x.d.Dest.Port(), x.d.Protocol)
	case fe.VIP.Protocol != x.d.Protocol:
		return
	case addr.IsLoopback() && x.family.Localhost && !x.d.Node:
		f.text = is + ", but on loopback it answers only processes of this node."
	case addr.IsLoopback():
		f.text = fmt.Sprintf("%s, but node ports of this node answer only on %s, and on loopback only with --nodeport-addresses=localhost (tcp and udp).", is, on)
	case other != "":
		f.text, f.names = fmt.Sprintf("%s, and %s", is, ofOtherNode(addr, other)), false
	case !slices.Contains(x.family.NodeAddrs, addr):
		f.text = fmt.Sprintf("%s, but %v is not a known address of this node, whose node ports answer on %s.", is, addr, on)
		if x.ourNode() == nil {
			f.advice = fmt.Sprintf("There is no Node %s among the objects, so this node's addresses are not known.", x.in.Config.NodeName)
		}
	default:
		f.text = fmt.Sprintf("%s, but node ports of this node answer only on %s (--nodeport-addresses), not on %v.", is, on, addr)
		f.advice = "With --nodeport-addresses=all, node ports answer on all addresses of this node."
	}
	x.add(f)
}

func ofOtherNode(addr netip.Addr, node string) string {
	return fmt.Sprintf("%v is an address of the node %s, which decides about the connection (--node-name %s).", addr, node, node)
}

// findUnserved finds Services that have the address but do not answer there.
func (x *explainer) findUnserved() {
	for _, s := range x.in.Objects.Services {
		kind, ingress, ok := roleOf(s, x.d.Dest.Addr())
		served := slices.ContainsFunc(x.found, func(f finding) bool { return f.service == s.NamespacedName })
		if !ok || served {
			continue
		}
		f := x.unserved(s, ingress)
		f.service, f.names = s.NamespacedName, true
		if why := x.in.Builder.Refused(s.NamespacedName, x.d.Dest.Addr()); why != "" {
			f.text, f.advice = fmt.Sprintf(", which is not served: %s.", why), ""
		}
		f.text = x.has(kind, s.NamespacedName) + f.text
		x.add(f)
	}
}

// roleOf returns the role of an address in a Service and, for a load balancer's, the ingress.
func roleOf(s model.Service, a netip.Addr) (model.FrontendKind, model.Ingress, bool) {
	if hasAddr(s.ClusterIPs, a) {
		return model.ClusterIP, model.Ingress{}, true
	}
	for _, in := range s.Ingress {
		if isAddr(in.IP, a) {
			return model.LoadBalancerIP, in, true
		}
	}
	return model.ExternalIP, model.Ingress{}, hasAddr(s.ExternalIPs, a)
}

// HasAddress reports whether a Service has an address.
func HasAddress(s model.Service, a netip.Addr) bool {
	_, _, ok := roleOf(s, a)
	return ok
}

// unserved returns why a Service does not answer on one of its addresses.
func (x *explainer) unserved(s model.Service, in model.Ingress) finding {
	family := model.FamilyOf(x.d.Dest.Addr())
	ofFamily := func(text string) bool {
		ip, err := model.ParseAddr(text)
		return err == nil && model.FamilyOf(ip) == family
	}
	const byName = "Connect by the Service's name, which DNS resolves."
	proxy, others := s.Labels[model.LabelServiceProxyName]
	switch {
	case others:
		return finding{
			text:   fmt.Sprintf(", whose label service.kubernetes.io/service-proxy-name=%s assigns it to another proxy.", proxy),
			advice: "Is that proxy running on this node? Its rules decide, not vmapd's.",
		}
	case s.Type == "ExternalName":
		return finding{text: ", whose type is ExternalName: it is only a name in DNS, and no proxy serves it.", advice: byName}
	case len(s.ClusterIPs) == 0 || s.ClusterIPs[0] == "" || s.ClusterIPs[0] == "None":
		return finding{text: ", which has no cluster IP (headless): DNS returns the pods' own addresses, and no proxy serves it.", advice: byName}
	case !slices.ContainsFunc(s.ClusterIPs, ofFamily):
		return finding{
			text:   fmt.Sprintf(", which has no %v cluster IP, so it is not served over %v.", family, family),
			advice: fmt.Sprintf("Is the Service meant to have %v? See spec.ipFamilyPolicy and spec.ipFamilies of %v.", family, s.NamespacedName),
		}
	case in.IPMode == "Proxy":
		return finding{
			text:   ", with ipMode Proxy: connections go to the load balancer itself, and nodes do not intercept them.",
			advice: fmt.Sprintf("The connection leaves this node for %v. Does the load balancer answer?", x.d.Dest.Addr()),
		}
	case len(s.Ports) == 0:
		return finding{text: ", which has no ports."}
	}
	return finding{text: ", which is invalid or over a budget, and so is not served: see the problems of this object."}
}

// findOthers finds other owners of the address: endpoints, Nodes and ServiceCIDRs.
func (x *explainer) findOthers() {
	addr := x.d.Dest.Addr()
	x.findPod()
	if slices.Contains(x.family.NodeAddrs, addr) && len(x.found) == 0 {
		x.add(finding{text: fmt.Sprintf("%v is an address of this node, and no Service served on it has the node port %d/%v.", addr, x.d.Dest.Port(), x.d.Protocol)})
	}
	if n := x.nodeWith(addr); n != "" && len(x.found) == 0 {
		x.add(finding{text: ofOtherNode(addr, n)})
	}
	for _, c := range x.in.Objects.ServiceCIDRs {
		for _, text := range c.CIDRs {
			if p, err := model.ParsePrefix(text); err != nil || !p.Contains(addr) || x.d.Why != model.UnallocatedAddr {
				continue
			}
			f := finding{text: fmt.Sprintf("%v is in %s, a range of cluster IPs (ServiceCIDR).", addr, text)}
			if len(x.found) == 0 {
				f.advice = fmt.Sprintf("Was the Service deleted, or is it in the cluster under another address? kubectl get services -A -o wide | grep %v", addr)
			}
			x.add(f)
		}
	}
}

// findPod finds the Services of a pod with the address: those with this port first, as the text has few of them.
func (x *explainer) findPod() {
	addr := x.d.Dest.Addr()
	var list []finding
	seen := map[string]bool{}
	x.eachEndpoint(addr, func(s model.EndpointSlice, e model.SliceEndpoint) {
		service := s.Labels[model.LabelServiceName]
		if seen[s.Namespace+"/"+service] {
			return
		}
		seen[s.Namespace+"/"+service] = true
		who := fmt.Sprintf("%v is an endpoint's own address (EndpointSlice %v", addr, s)
		if pod := x.in.Names.PodOf(s.NamespacedName, addr); pod != "" {
			who = fmt.Sprintf("%v is the own address of pod %s (EndpointSlice %v", addr, pod, s)
		}
		if e.NodeName != "" {
			who += ", on " + e.NodeName
		}
		who += ")"
		f := finding{rank: 1}
		if service != "" {
			f.service = model.NamespacedName{Namespace: s.Namespace, Name: service}
			who += " of Service " + f.service.String()
		}
		f.text = who + ": connecting to it directly bypasses every Service." + sayState(e)
		if len(s.Ports) > 0 {
			f.text += " Its ports there: " + slicePorts(s) + "."
		}
		if slices.ContainsFunc(s.Ports, func(p model.SlicePort) bool { return ptr.Deref(p.Port, 0) == int32(x.d.Dest.Port()) }) {
			f.rank = 0
		}
		list = append(list, f)
	})
	slices.SortStableFunc(list, func(a, b finding) int { return cmp.Compare(a.rank, b.rank) })
	most := len(list)
	if !x.in.All {
		most = min(most, fewAddresses)
	}
	for _, f := range list[:most] {
		x.add(f)
	}
	if more := len(list) - most; more > 0 {
		x.add(finding{text: fmt.Sprintf("It is an endpoint of %d more Services (--all lists them).", more)})
	}
}

// sayState describes an endpoint that is not ready.
func sayState(e model.SliceEndpoint) string {
	switch {
	case ptr.Deref(e.Ready, true):
		return ""
	case !isTerminating(e):
		return " It is not ready."
	case ptr.Deref(e.Serving, true):
		return " It is terminating, but still serving."
	}
	return " It is terminating, and no longer serving."
}

func isTerminating(e model.SliceEndpoint) bool { return ptr.Deref(e.Terminating, false) }

// slicePorts lists the ports of a slice.
func slicePorts(s model.EndpointSlice) string {
	var list []string
	for _, p := range s.Ports {
		list = append(list, portText(ptr.Deref(p.Name, ""), int(ptr.Deref(p.Port, 0)), strings.ToLower(ptr.Deref(p.Protocol, "tcp"))))
	}
	return strings.Join(list, ", ")
}
