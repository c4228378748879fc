package explain

import (
	"fmt"
	"slices"
	"strings"
)

// sayFindings describes a destination that belongs to no Service.
func (e *Explanation) sayFindings() []string {
	d := e.Destination
	var said []string
	for _, f := range d.Findings {
		said = append(said, e.sayFinding(f))
	}
	if len(said) == 0 {
		return []string{fmt.Sprintf("Neither a Service nor an EndpointSlice has the address %s.", d.Address)}
	}
	// Findings about a Service name it; before others, say that there is none.
	if first := d.Findings[0].Kind; slices.Contains([]FindingKind{PodItself, ThisNode, OtherNodeAddr, InServiceCIDR}, first) {
		return append([]string{fmt.Sprintf("%v belongs to no Service.", d)}, said...)
	}
	return said
}

func (e *Explanation) sayFinding(f Finding) string {
	d := e.Destination
	has := fmt.Sprintf("%s is %s of Service %s", d.Address, roleText(f.Role), f.Service)
	ports := portTexts(f.Ports)
	switch f.Kind {
	case OtherPort:
		return e.sayOtherPort(f, has)
	case OtherProxy:
		return fmt.Sprintf("%s, whose label service.kubernetes.io/service-proxy-name=%s assigns it to another proxy.", has, f.Name)
	case HeadlessLabel:
		return has + ", whose label service.kubernetes.io/headless means that no proxy serves it."
	case ExternalName:
		return has + ", whose type is ExternalName: it is only a name in DNS, and no proxy serves it."
	case NoClusterIP:
		return has + ", which has no cluster IP (headless): DNS returns the pods' own addresses, and no proxy serves it."
	case OtherFamily:
		return fmt.Sprintf("%s, which has no %s cluster IP, so it is not served over %s.", has, e.family(), e.family())
	case IPModeProxy:
		return has + ", with ipMode Proxy: connections go to the load balancer itself, and nodes do not intercept them."
	case Unusable:
		return has + ", which is invalid and so is not served: see the problems of this object."
	case NodePortElsewhere:
		return fmt.Sprintf("%s is the node port of Service %s, but node ports of this node answer only on %s (--nodeport-addresses), not on %s.",
			ports, f.Service, orNone(f.Addresses), d.Address)
	case NodePortNotHere:
		return fmt.Sprintf("%s is the node port of Service %s, but %s is not a known address of this node, whose node ports answer on %s.",
			ports, f.Service, d.Address, orNone(f.Addresses))
	case NodePortLocalhost:
		return fmt.Sprintf("%s is the node port of Service %s, but node ports of this node answer only on %s, and on loopback only with --nodeport-addresses=localhost (tcp and udp).",
			ports, f.Service, orNone(f.Addresses))
	case NodePortNotNode:
		return fmt.Sprintf("%s is the node port of Service %s, but on loopback it answers only processes of this node.", ports, f.Service)
	case NodePortProtocol:
		return fmt.Sprintf("%s is the node port of Service %s, but %d/%s is not.", ports, f.Service, d.Port, d.Protocol)
	case PodItself:
		return e.sayPodItself(f)
	case ThisNode:
		return fmt.Sprintf("%s is an address of this node, and no Service served on it has the node port %d/%s.", d.Address, d.Port, d.Protocol)
	case OtherNodeAddr:
		if f.Service != "" {
			return fmt.Sprintf("%s is the node port of Service %s, and %s is an address of the node %s, which decides about the connection (--node-name %s).",
				ports, f.Service, d.Address, f.Name, f.Name)
		}
		return fmt.Sprintf("%s is an address of the node %s, which decides about the connection (--node-name %s).", d.Address, f.Name, f.Name)
	case InServiceCIDR:
		return fmt.Sprintf("%s is in %s, a range of cluster IPs (ServiceCIDR).", d.Address, f.Name)
	}
	return string(f.Kind)
}

func (e *Explanation) family() string {
	if strings.Contains(e.Destination.Address, ":") {
		return "IPv6"
	}
	return "IPv4"
}

func (e *Explanation) sayOtherPort(f Finding, has string) string {
	d := e.Destination
	if len(f.Ports) == 0 {
		return has + ", which has no ports."
	}
	for _, p := range f.Ports {
		if p.Port == int(d.Port) {
			return fmt.Sprintf("%s, which has port %d for %s, not for %s. Its ports there: %s.", has, d.Port, p.Protocol, d.Protocol, portTexts(f.Ports))
		}
	}
	return fmt.Sprintf("%s, but the Service has no port %d/%s there; its ports are %s.", has, d.Port, d.Protocol, portTexts(f.Ports))
}

func (e *Explanation) sayPodItself(f Finding) string {
	who := fmt.Sprintf("%s is an endpoint's own address (EndpointSlice %s", e.Destination.Address, f.Name)
	if f.NodeName != "" {
		who += ", on " + f.NodeName
	}
	who += ")"
	if f.Service != "" {
		who += " of Service " + f.Service
	}
	text := who + ": connecting to it directly bypasses every Service."
	if f.State != "ready" {
		text += fmt.Sprintf(" It is %s.", stateText(f.State))
	}
	if len(f.Ports) > 0 {
		text += " Its ports there: " + portTexts(f.Ports) + "."
	}
	return text
}

func (p Port) String() string {
	text := fmt.Sprintf("%d/%s", p.Port, p.Protocol)
	if p.Port == 0 {
		text = "no number, " + p.Protocol
	}
	if p.Name != "" {
		return fmt.Sprintf("%q (%s)", p.Name, text)
	}
	return text
}

func portTexts(list []Port) string { return strings.Join(texts(list), ", ") }

func stateText(state string) string {
	switch state {
	case "terminating":
		return "terminating, but still serving"
	case "terminated":
		return "terminating, and no longer serving"
	case "notReady":
		return "not ready"
	}
	return state
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "no known address"
	}
	return strings.Join(list, ", ")
}
