package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
)

// explainEndpoints lists the endpoints, with the reasons why some are not used.
func (x *explainer) explainEndpoints() {
	policy := x.d.TrafficPolicy
	selection := x.in.Builder.Selection(x.d.Port.Name, x.d.Port.Family)
	var used, unused [][2]string // address, and what is said of it
	for _, t := range x.d.Targets {
		e := x.endpoint(t.Addr.Addr())
		text := x.sayWhere(e, t.Local)
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
		x.e.Used = append(x.e.Used, Endpoint{t.Addr.String(), e.Pod, e.NodeName, t.SNAT.Masquerade()})
	}
	for _, c := range selection.Candidates {
		if !slices.ContainsFunc(x.d.Targets, func(t model.Target) bool { return t.Addr == c.Addr }) {
			e := x.endpoint(c.Addr.Addr())
			unused = append(unused, [2]string{c.Addr.String(), fmt.Sprintf("%s; %s, EndpointSlice %s",
				sayExcluded(c, policy, e), x.sayWhere(e, c.Local), texts(c.Slices))})
		}
	}
	which, ignored := x.sayHints(selection)
	lines := table(used)
	if len(used) > 0 && len(unused) > 0 {
		lines = append(lines, "not used:")
	}
	lines = slices.Concat(lines, table(unused), ignored, x.saySlices(selection))
	total := len(used) + len(unused)
	if total == 0 {
		x.step(fmt.Sprintf("No EndpointSlice of Service %s has an endpoint for %s.", x.e.Service, x.portText()), lines...)
		x.advise()
		return
	}
	x.step(fmt.Sprintf("%d of %s used%s:", len(used), report.Plural(total, "endpoint"), which), lines...)
	if x.d.Why == model.NoEndpoints {
		x.next("Why is no pod ready? kubectl -n %s get pods -o wide, and kubectl -n %[1]s describe pod NAME", x.service.Namespace)
	}
}

// endpoint returns what slices have about an endpoint of the Service; a snapshot has no names.
func (x *explainer) endpoint(addr netip.Addr) names.Endpoint {
	if list := x.own.At(addr); len(list) > 0 {
		return list[0]
	}
	return names.Endpoint{}
}

// sayHints says which hints selected endpoints or, if all were ignored, why.
func (x *explainer) sayHints(s model.Selection) (which string, ignored []string) {
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
		return "", nil
	case s.Hints == model.NodeHints:
		return " by hints for this node", nil
	case s.Hints == model.ZoneHints:
		return " by hints for this node's zone " + zone, nil
	case hinted < ready:
		return "", []string{"hints are ignored: not every ready endpoint has them"}
	}
	return "", []string{"hints are ignored: none is for this node or its zone " + zone}
}

func (x *explainer) sayWhere(e names.Endpoint, local bool) string {
	where := "on " + cmp.Or(e.NodeName, "an unknown node")
	if local {
		where = "on this node"
	}
	return strings.TrimSpace(x.shortPod(e.Pod) + " " + where)
}

// shortPod leaves the namespace out of a pod's name if it is the Service's.
func (x *explainer) shortPod(pod string) string {
	return strings.TrimPrefix(pod, x.service.Namespace+"/")
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

// table returns a line of two columns for each endpoint, up to maxRows.
func table(list [][2]string) (lines []string) {
	width := 0
	for _, r := range list[:min(len(list), maxRows)] {
		width = max(width, len(r[0]))
	}
	for i, r := range list {
		if i == maxRows {
			return append(lines, fmt.Sprintf("  and %d more", len(list)-i))
		}
		lines = append(lines, fmt.Sprintf("  %-*s  %s", width, r[0], r[1]))
	}
	return lines
}

// saySlices says why slices with endpoints offer none for the port.
func (x *explainer) saySlices(selection model.Selection) (lines []string) {
	for _, s := range x.own.Slices {
		i := slices.IndexFunc(selection.Slices, func(o model.OtherSlice) bool { return o.Name == s.NamespacedName })
		_, headless := s.Labels[model.LabelHeadless]
		why := ""
		switch {
		case len(s.Endpoints) == 0:
		case headless:
			why = "has the label service.kubernetes.io/headless: no proxy uses it"
		case s.AddressType != "IPv4" && s.AddressType != "IPv6":
			why = fmt.Sprintf("has the addressType %s: no proxy uses it", s.AddressType)
		case i < 0, selection.Slices[i].Why == model.OtherFamily && len(selection.Candidates) > 0:
		case selection.Slices[i].Why == model.OtherFamily:
			why = fmt.Sprintf("is not for %v", x.d.Port.Family)
		case selection.Slices[i].Why == model.OverBudget:
			why = "is beyond the budget of the Service's endpoints"
		default:
			why = "offers " + cmp.Or(slicePorts(s), "no port")
		}
		if why != "" {
			lines = append(lines, fmt.Sprintf("EndpointSlice %v (%s) %s", s, report.Plural(len(s.Endpoints), "endpoint"), why))
		}
	}
	return lines
}

// slicePorts lists the ports of a slice.
func slicePorts(s names.SliceObject) string {
	var list []string
	for _, p := range s.Ports {
		protocol := strings.ToLower(ptr.Deref(p.Protocol, "tcp"))
		list = append(list, names.PortText(ptr.Deref(p.Name, ""), ptr.Deref(p.Port, 0), protocol))
	}
	return strings.Join(list, ", ")
}
