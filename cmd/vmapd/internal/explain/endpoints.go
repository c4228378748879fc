package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
)

func (x *explainer) explainEndpoints() {
	selection := x.in.Builder.Selection(x.d.Port.Name, x.d.Port.Family)
	var used, unused []string
	for _, t := range x.d.Targets {
		e := x.endpoint(t.Addr)
		used = append(used, fmt.Sprintf("%v  %s", t.Addr, sayWhere(e, t.Local)))
		x.e.Used = append(x.e.Used, Endpoint{t.Addr, e.Pod.String(), e.NodeName, t.SNAT.Masquerade()})
	}
	for _, c := range selection.Candidates {
		if !slices.ContainsFunc(x.d.Targets, func(t model.Target) bool { return t.Addr == c.Addr }) {
			e := x.endpoint(c.Addr)
			var offers []string
			for _, o := range x.own[c.Addr.Addr()] {
				if !slices.Contains(selection.NoPort, o.Slice.NamespacedName) {
					offers = append(offers, o.Slice.String())
				}
			}
			why := exclusions[c.Excluded[x.d.TrafficPolicy]]
			unused = append(unused, fmt.Sprintf("%v  %s; %s, EndpointSlice %s", c.Addr, why,
				sayWhere(e, c.Has(model.OnThisNode)), report.List(slices.Compact(offers), 0)))
		}
	}
	x.list(used)
	if len(used) > 0 && len(unused) > 0 {
		x.line("not used:")
	}
	x.list(unused)
	x.sayHints(selection)
	x.saySlices(selection)
	total := len(used) + len(unused)
	if total == 0 {
		x.step("No EndpointSlice of Service %s has an endpoint for %s.", x.e.Service, x.portText())
		x.advise()
		return
	}
	x.step("%d of %s used:", len(used), report.Plural(total, "endpoint"))
	if x.d.Why == model.NoEndpoints {
		x.next("Why is no pod ready? kubectl -n %s get pods -o wide, and kubectl -n %[1]s describe pod NAME",
			x.service.Namespace)
	}
}

// endpoint returns what slices have about an endpoint of the Service; a snapshot has no names.
func (x *explainer) endpoint(at netip.AddrPort) (e names.Endpoint) {
	if list := x.own[at.Addr()]; len(list) > 0 {
		return list[0]
	}
	return e
}

// sayHints says that the hints of ready endpoints were ignored.
func (x *explainer) sayHints(s model.Selection) {
	hasHints := func(c model.Candidate) bool {
		return c.Has(model.Ready) && (c.Has(model.HintsNodes) || c.Has(model.HintsZones))
	}
	if x.d.TrafficPolicy == model.Cluster && s.Hints == model.NoHints && slices.ContainsFunc(s.Candidates, hasHints) {
		zone := cmp.Or(ptr.Deref(x.node, model.Node{}).Zone, "(unknown)")
		x.line("hints are ignored: none is for this node or its zone %s, or a ready endpoint has none", zone)
	}
}

// sayWhere names the pod of an endpoint of the Service, which is in its namespace, and the nodes and zones that it has
// to do with.
func sayWhere(e names.Endpoint, local bool) string {
	where := "on " + cmp.Or(e.NodeName, "an unknown node")
	if local {
		where = "on this node"
	}
	if e.IsTerminating() {
		where += ", terminating"
	}
	if hints := slices.Concat(e.HintNodes, e.HintZones); len(hints) > 0 {
		where += ", for " + strings.Join(hints, ", ")
	}
	return strings.TrimSpace(e.Pod.Name + " " + where)
}

// exclusions say why a policy does not select an endpoint.
var exclusions = [...]string{
	model.NotExcluded:     "usable, but not yet in the rules", // the objects are newer than the snapshot that decides
	model.NotServing:      "not ready (readiness probe failing, or still starting?)",
	model.NotLocal:        "not on this node",
	model.ReadyOnesExist:  "others are ready",
	model.HintsOtherNodes: "its hints are for other nodes",
	model.HintsOtherZones: "its hints are for other zones",
}

func (x *explainer) list(endpoints []string) {
	for _, text := range report.First(endpoints, maxRows) {
		x.line("  %s", text)
	}
}

func (x *explainer) saySlices(selection model.Selection) {
	for _, s := range x.slices {
		_, headless := s.Labels[model.LabelHeadless]
		why := ""
		switch {
		case len(s.Endpoints) == 0:
			continue
		case headless:
			why = "has the label service.kubernetes.io/headless: no proxy uses it"
		case s.AddressType != x.d.Port.Family.String():
			if len(selection.Candidates) > 0 {
				continue
			}
			why = fmt.Sprintf("has the addressType %s, not %v", s.AddressType, x.d.Port.Family)
		case slices.Contains(selection.OverBudget, s.NamespacedName):
			why = "is beyond the budget of the Service's endpoints"
		case !slices.Contains(selection.NoPort, s.NamespacedName):
			continue
		default:
			var ports []model.Port
			for _, p := range s.Ports {
				port := model.Port{Name: ptr.Deref(p.Name, ""), Protocol: ptr.Deref(p.Protocol, "")}
				port.Port = ptr.Deref(p.Port, 0)
				ports = append(ports, port)
			}
			why = "offers " + cmp.Or(names.PortsText(ports), "no port")
		}
		x.line("EndpointSlice %v (%s) %s", s, report.Plural(len(s.Endpoints), "endpoint"), why)
	}
}

func (x *explainer) advise() {
	s := x.service
	hasEndpoints := func(o names.SliceObject) bool { return len(o.Endpoints) > 0 }
	if slices.ContainsFunc(x.slices, hasEndpoints) {
		for i, p := range s.Spec.Ports {
			if p.Name == x.d.Port.Name.Port && p.TargetPort.Type == intstr.String {
				x.next("spec.ports[%d].targetPort of Service %s is %s: "+
					"does a container of its pods have a port of that name?", i, x.e.Service, p.TargetPort.StrVal)
			}
		}
		return
	}
	label := model.LabelServiceName + "=" + s.Name
	for _, o := range x.in.Objects.Slices {
		if o.Namespace == s.Namespace && o.Labels[model.LabelServiceName] == "" && hasEndpoints(o) {
			x.next("EndpointSlice %v lacks the label %s: it belongs to no Service.", o, label)
		}
	}
	if len(s.Spec.Selector) == 0 {
		x.next("Service %s has no selector, so somebody must create its EndpointSlices, with the label %s.",
			x.e.Service, label)
		return
	}
	x.next("spec.selector of Service %s is %s. Which pods have these labels? kubectl -n %s get pods --show-labels",
		x.e.Service, labels.Set(s.Spec.Selector), s.Namespace)
}

func (x *explainer) explainUnserved() {
	addr := x.d.Dest.Addr()
	for _, s := range x.in.Objects.Services {
		said := len(x.lines)
		x.sayNodePorts(s)
		if s.HasAddress(addr) {
			x.line("%v is an address of Service %v, %s.", addr, s, x.sayUnserved(s))
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
			names.PortsText([]model.Port{p}), s, on)
	}
}

func (x *explainer) sayUnserved(s names.ServiceObject) string {
	family, addrs := model.FamilyOf(x.d.Dest.Addr()), names.Addrs(s.ClusterIPs)
	ofFamily := func(a netip.Addr) bool { return model.FamilyOf(a) == family }
	isProxied := func(in model.Ingress) bool {
		return in.IPMode == "Proxy" && names.Has([]string{in.IP}, x.d.Dest.Addr())
	}
	proxy, others := s.Labels[model.LabelServiceProxyName]
	switch {
	case others:
		return fmt.Sprintf("which the label %s=%s assigns to another proxy", model.LabelServiceProxyName, proxy)
	case s.Type == "ExternalName", !slices.ContainsFunc(addrs, ofFamily):
		const text = "which has no %v cluster IP (headless, ExternalName, or of one family): no proxy serves it"
		return fmt.Sprintf(text, family)
	case slices.ContainsFunc(s.Ingress, isProxied):
		return "with ipMode Proxy: connections go to the load balancer itself, and nodes do not intercept them"
	}
	for _, p := range s.Ports {
		if protocol, _ := model.ParseProtocol(p.Protocol); p.Port == int32(x.d.Dest.Port()) && protocol == x.d.Protocol {
			x.unserved = s.String()
			return "which is not served there: see its problems"
		}
	}
	return fmt.Sprintf("which has no port %s; its ports: %s", x.port(), cmp.Or(names.PortsText(s.Ports), "none"))
}

// sayOwners names what has the address: endpoints and Nodes.
func (x *explainer) sayOwners() {
	addr, known := x.d.Dest.Addr(), len(x.lines) > 0
	var of []string // Services
	list := x.in.Objects.ByAddress()[addr]
	for _, e := range list {
		if name := e.Slice.Labels[model.LabelServiceName]; name != "" {
			of = append(of, e.Slice.Namespace+"/"+name)
		}
	}
	if len(list) > 0 {
		who := "an endpoint"
		if pod := x.in.Objects.PodAt(addr); pod != "" {
			who = "pod " + pod
		}
		x.line("%v is the own address of %s, on %s, in Services: %s. Connecting to it directly bypasses them.", addr, who,
			cmp.Or(list[0].NodeName, "an unknown node"), cmp.Or(report.List(slices.Compact(of), maxRows), "none"))
	}
	switch n := x.in.Objects.NodeAt(addr); {
	case n != nil && n.Name != x.in.Config.NodeName:
		x.line("%v is an address of the node %s, which decides about the connection (--node-name %[2]s).", addr, n.Name)
	case slices.Contains(x.family.NodeAddrs, addr) && !known:
		x.line("%v is an address of this node, and no Service served on it has the node port %s.", addr, x.port())
	}
}
