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
	var used, unused [][2]string // address, and what is said of it
	for _, t := range x.d.Targets {
		e := x.endpoint(t.Addr.Addr())
		text := sayWhere(e, t.Local)
		if e.IsTerminating() {
			text += ", terminating"
		}
		if t.SNAT == model.Hairpin {
			text += ", the client itself"
		}
		if hints := slices.Concat(e.HintNodes, e.HintZones); len(hints) > 0 {
			text += ", for " + strings.Join(hints, ", ")
		}
		used = append(used, [2]string{t.Addr.String(), text})
		x.e.Used = append(x.e.Used, Endpoint{t.Addr.String(), e.Pod.String(), e.NodeName, t.SNAT.Masquerade()})
	}
	for _, c := range selection.Candidates {
		if !slices.ContainsFunc(x.d.Targets, func(t model.Target) bool { return t.Addr == c.Addr }) {
			e := x.endpoint(c.Addr.Addr())
			unused = append(unused, [2]string{c.Addr.String(), fmt.Sprintf("%s; %s, EndpointSlice %s",
				sayExcluded(c, x.d.TrafficPolicy, e), sayWhere(e, c.Local), report.List(c.Slices, 0))})
		}
	}
	x.table(used)
	if len(used) > 0 && len(unused) > 0 {
		x.line("not used:")
	}
	x.table(unused)
	which := x.sayHints(selection)
	x.saySlices(selection)
	total := len(used) + len(unused)
	if total == 0 {
		x.step("No EndpointSlice of Service %s has an endpoint for %s.", x.e.Service, x.portText())
		x.advise()
		return
	}
	x.step("%d of %s used%s:", len(used), report.Plural(total, "endpoint"), which)
	if x.d.Why == model.NoEndpoints {
		x.next("Why is no pod ready? kubectl -n %s get pods -o wide, and kubectl -n %[1]s describe pod NAME",
			x.service.Namespace)
	}
}

// endpoint returns what slices have about an endpoint of the Service; a snapshot has no names.
func (x *explainer) endpoint(addr netip.Addr) (e names.Endpoint) {
	for _, e := range x.own.At(addr) {
		return e
	}
	return e
}

// sayHints says which hints selected endpoints or, in a line, why all were ignored.
func (x *explainer) sayHints(s model.Selection) string {
	ready, hinted, zone := 0, 0, "(unknown)"
	if x.node != nil {
		zone = cmp.Or(x.node.Zone, zone)
	}
	for _, c := range s.Candidates {
		if c.Ready {
			ready++
		}
		if c.Ready && (c.HintsNodes || c.HintsZones) {
			hinted++
		}
	}
	switch {
	case x.d.TrafficPolicy != model.Cluster || hinted == 0:
	case s.Hints == model.NodeHints:
		return " by hints for this node"
	case s.Hints == model.ZoneHints:
		return " by hints for this node's zone " + zone
	case hinted < ready:
		x.line("hints are ignored: not every ready endpoint has them")
	default:
		x.line("hints are ignored: none is for this node or its zone %s", zone)
	}
	return ""
}

// sayWhere names the pod of an endpoint of the Service, which is in its namespace, and the node.
func sayWhere(e names.Endpoint, local bool) string {
	where := "on " + cmp.Or(e.NodeName, "an unknown node")
	if local {
		where = "on this node"
	}
	return strings.TrimSpace(e.Pod.Name + " " + where)
}

// sayExcluded says why a policy does not select an endpoint: it has a sentence for each Exclusion.
func sayExcluded(c model.Candidate, policy model.TrafficPolicy, e names.Endpoint) string {
	switch c.Excluded[policy] {
	case model.NotExcluded:
		return "usable, but not yet in the rules" // the objects are newer than the snapshot that decides
	case model.NotServing:
		if c.Terminating {
			return "terminating and no longer serving"
		}
		return "not ready (readiness probe failing, or still starting?)"
	case model.NotLocal:
		return "not on this node"
	case model.ReadyOnesExist:
		return "terminating, and others are ready"
	case model.HintsOtherNodes:
		return "its hints are for other nodes: " + strings.Join(e.HintNodes, ", ")
	case model.HintsOtherZones:
		return "its hints are for other zones: " + strings.Join(e.HintZones, ", ")
	}
	return ""
}

// table adds a line of two columns for each endpoint, up to maxRows.
func (x *explainer) table(list [][2]string) {
	width := 0
	for _, r := range list[:min(len(list), maxRows)] {
		width = max(width, len(r[0]))
	}
	for i, r := range list {
		if i == maxRows {
			x.line("  and %d more", len(list)-i)
			return
		}
		x.line("  %-*s  %s", width, r[0], r[1])
	}
}

func (x *explainer) saySlices(selection model.Selection) {
	for _, s := range x.own.Slices {
		i := slices.IndexFunc(selection.Slices, func(o model.OtherSlice) bool { return o.Name == s.NamespacedName })
		_, headless := s.Labels[model.LabelHeadless]
		why := ""
		switch {
		case len(s.Endpoints) == 0:
			continue
		case headless:
			why = "has the label service.kubernetes.io/headless: no proxy uses it"
		case s.AddressType != "IPv4" && s.AddressType != "IPv6":
			why = fmt.Sprintf("has the addressType %s: no proxy uses it", s.AddressType)
		case i < 0, selection.Slices[i].Why == model.OtherFamily && len(selection.Candidates) > 0:
			continue
		case selection.Slices[i].Why == model.OtherFamily:
			why = fmt.Sprintf("is not for %v", x.d.Port.Family)
		case selection.Slices[i].Why == model.OverBudget:
			why = "is beyond the budget of the Service's endpoints"
		default:
			var ports []string
			for _, p := range s.Ports {
				port := model.Port{Name: ptr.Deref(p.Name, ""), Protocol: ptr.Deref(p.Protocol, "")}
				port.Port = ptr.Deref(p.Port, 0)
				ports = append(ports, names.PortText(port))
			}
			why = "offers " + cmp.Or(strings.Join(ports, ", "), "no port")
		}
		x.line("EndpointSlice %v (%s) %s", s, report.Plural(len(s.Endpoints), "endpoint"), why)
	}
}

func (x *explainer) advise() {
	s := x.service
	hasEndpoints := func(o names.SliceObject) bool { return len(o.Endpoints) > 0 }
	if slices.ContainsFunc(x.own.Slices, hasEndpoints) {
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
