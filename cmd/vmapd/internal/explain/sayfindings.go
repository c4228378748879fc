package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// sayFindings describes a destination that belongs to no Service.
func (e *Explanation) sayFindings() []string {
	d := e.Destination
	var said []string
	pods := 0 // findings about the address of one pod
	for _, f := range d.Findings {
		if f.Kind == PodItself {
			if pods++; pods > fewAddresses && !e.all {
				continue
			}
		}
		said = append(said, e.sayFinding(f))
	}
	if more := pods - fewAddresses; more > 0 && !e.all {
		said = append(said, fmt.Sprintf("It is an endpoint of %d more Services (--all lists them).", more))
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

// The texts of findings; fill replaces the words in braces.
var findingTexts = map[FindingKind]string{
	OtherProxy:        "{has}, whose label service.kubernetes.io/service-proxy-name={name} assigns it to another proxy.",
	ExternalName:      "{has}, whose type is ExternalName: it is only a name in DNS, and no proxy serves it.",
	NoClusterIP:       "{has}, which has no cluster IP (headless): DNS returns the pods' own addresses, and no proxy serves it.",
	OtherFamily:       "{has}, which has no {family} cluster IP, so it is not served over {family}.",
	IPModeProxy:       "{has}, with ipMode Proxy: connections go to the load balancer itself, and nodes do not intercept them.",
	Refused:           "{has}, which is not served: {name}.",
	Unusable:          "{has}, which is invalid or over a budget, and so is not served: see the problems of this object.",
	NodePortElsewhere: "{isNodePort}, but node ports of this node answer only on {addresses} (--nodeport-addresses), not on {address}.",
	NodePortNotHere:   "{isNodePort}, but {address} is not a known address of this node, whose node ports answer on {addresses}.",
	NodePortLocalhost: "{isNodePort}, but node ports of this node answer only on {addresses}, and on loopback only with --nodeport-addresses=localhost (tcp and udp).",
	NodePortNotNode:   "{isNodePort}, but on loopback it answers only processes of this node.",
	NodePortProtocol:  "{isNodePort}, but {port} is not.",
	ThisNode:          "{address} is an address of this node, and no Service served on it has the node port {port}.",
	OtherNodeAddr:     "{address} is an address of the node {name}, which decides about the connection (--node-name {name}).",
	InServiceCIDR:     "{address} is in {name}, a range of cluster IPs (ServiceCIDR).",
}

var findingAdvice = map[FindingKind]string{
	OtherProxy:        "Is that proxy running on this node? Its rules decide, not vmapd's.",
	ExternalName:      "Connect by the Service's name, which DNS resolves.",
	NoClusterIP:       "Connect by the Service's name, which DNS resolves.",
	OtherFamily:       "Is the Service meant to have {family}? See spec.ipFamilyPolicy and spec.ipFamilies of {service}.",
	NodePortElsewhere: "With --nodeport-addresses=all, node ports answer on all addresses of this node.",
	IPModeProxy:       "The connection leaves this node for {address}. Does the load balancer answer?",
	InServiceCIDR:     "Was the Service deleted, or is it in the cluster under another address? kubectl get services -A -o wide | grep {address}",
	NodePortNotHere:   "There is no Node {node} among the objects, so this node's addresses are not known.",
}

func (e *Explanation) fill(text string, f Finding) string {
	d := e.Destination
	return strings.NewReplacer(
		"{has}", fmt.Sprintf("%s is %s of Service %s", d.Address, roleText(f.Role), f.Service),
		"{isNodePort}", fmt.Sprintf("%s is the node port of Service %s", portTexts(f.Ports), f.Service),
		"{address}", d.Address,
		"{addresses}", cmp.Or(strings.Join(f.Addresses, ", "), "no known address"),
		"{family}", e.family(),
		"{name}", f.Name,
		"{node}", e.Node.Name,
		"{port}", fmt.Sprintf("%d/%s", d.Port, d.Protocol),
		"{service}", f.Service,
	).Replace(text)
}

func (e *Explanation) sayFinding(f Finding) string {
	text := findingTexts[f.Kind]
	switch {
	case f.Kind == OtherPort:
		text = "{has}" + e.sayOtherPort(f)
	case f.Kind == PodItself:
		return e.sayPodItself(f)
	case f.Kind == OtherNodeAddr && f.Service != "":
		text = "{isNodePort}, and " + text
	}
	return e.fill(text, f)
}

func (e *Explanation) family() string {
	if strings.Contains(e.Destination.Address, ":") {
		return "IPv6"
	}
	return "IPv4"
}

func (e *Explanation) sayOtherPort(f Finding) string {
	if len(f.Ports) == 0 {
		return ", which has no ports."
	}
	d := e.Destination
	for _, p := range f.Ports {
		if p.Port == int(d.Port) {
			return fmt.Sprintf(", which has port %d for %s, not for %s. Its ports there: %s.", d.Port, p.Protocol, d.Protocol, portTexts(f.Ports))
		}
	}
	return fmt.Sprintf(", but the Service has no port %d/%s there; its ports are %s.", d.Port, d.Protocol, portTexts(f.Ports))
}

func (e *Explanation) sayPodItself(f Finding) string {
	who := fmt.Sprintf("%s is an endpoint's own address (EndpointSlice %s", e.Destination.Address, f.Name)
	if f.Pod != "" {
		who = fmt.Sprintf("%s is the own address of pod %s (EndpointSlice %s", e.Destination.Address, f.Pod, f.Name)
	}
	if f.NodeName != "" {
		who += ", on " + f.NodeName
	}
	who += ")"
	if f.Service != "" {
		who += " of Service " + f.Service
	}
	text := who + ": connecting to it directly bypasses every Service."
	if f.State != "ready" {
		text += fmt.Sprintf(" It is %s.", stateTexts[f.State])
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

var stateTexts = map[string]string{
	"terminating": "terminating, but still serving",
	"terminated":  "terminating, and no longer serving",
	"notReady":    "not ready",
}
