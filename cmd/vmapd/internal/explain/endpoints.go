package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// row is an endpoint with the names that slices and pods have for it; a snapshot has none.
type row struct {
	address, pod, node   string // the pod with its namespace
	local                bool
	slices               []model.NamespacedName
	hintNodes, hintZones []string
	podReason            string // why the pod is not ready, if it is known
}

// explainEndpoints lists the endpoints, with the reasons why some are not used.
func (x *explainer) explainEndpoints() {
	policy := x.d.TrafficPolicy
	selection := x.in.Builder.Selection(x.d.Port.Name, x.d.Port.Family)
	hints, ignored := "", ""
	if policy == model.Cluster {
		hints, ignored = x.sayHints(selection)
	}
	x.pods = map[string]string{}
	var used, unused []row
	var usedTexts, unusedTexts []string
	draining := false
	for _, c := range selection.Candidates {
		r := x.row(c)
		i := slices.IndexFunc(x.d.Targets, func(t model.Target) bool { return t.Addr == c.Addr })
		if i < 0 {
			unused = append(unused, r)
			unusedTexts = append(unusedTexts, fmt.Sprintf("%s; %s, EndpointSlice %s", sayExcluded(c, policy, r), x.sayWhere(r), texts(r.slices)))
			continue
		}
		draining = draining || c.Draining
		text := x.sayWhere(r)
		if c.Draining {
			text += ", terminating"
		}
		if x.d.Targets[i].SNAT == model.Hairpin {
			text += ", the client itself"
		}
		if hints != "" || ignored != "" {
			text += sayHintsOf(r)
		}
		used, usedTexts = append(used, r), append(usedTexts, text)
	}
	// The objects may be newer than the snapshot that decides.
	for _, t := range x.d.Targets {
		if !slices.ContainsFunc(used, func(r row) bool { return r.address == t.Addr.String() }) {
			r := row{address: t.Addr.String(), local: t.Local}
			used, usedTexts = append(used, r), append(usedTexts, x.sayWhere(r)+", in no EndpointSlice any more")
		}
	}
	x.keepUsed(used)
	if draining {
		hints = " (none is ready, so terminating endpoints that still serve are used)"
	}
	text := x.sayCount(len(used), len(used)+len(unused), hints)
	switch {
	case len(used)+len(unused) == 0:
		text = x.explainLacking(selection)
	case len(used) > 0:
		x.adviseTargetPort()
	case x.d.Why == model.NoEndpoints:
		x.next("Why is no pod ready? kubectl -n %s get pods -o wide, and kubectl -n %[1]s describe pod NAME", x.service.Namespace)
	}
	lines := x.table(used, usedTexts)
	if len(used) > 0 && len(unused) > 0 {
		lines = append(lines, "not used:")
	}
	lines = append(lines, x.table(unused, unusedTexts)...)
	if ignored != "" && len(used)+len(unused) > 0 {
		lines = append(lines, ignored)
	}
	for _, o := range selection.Slices {
		if line := x.saySlice(o); line != "" && (o.Why != model.OtherFamily || len(used) == 0) {
			lines = append(lines, line)
		}
	}
	x.step(text, append(lines, x.foreignSlices()...)...)
}

// row describes a candidate.
func (x *explainer) row(c model.Candidate) row {
	r := row{address: c.Addr.String(), local: c.Local, slices: c.Slices}
	for _, s := range x.slices {
		if !slices.Contains(c.Slices, s.NamespacedName) {
			continue
		}
		for _, e := range s.Endpoints {
			if !hasFirst(e, c.Addr.Addr()) || isTerminating(e) != c.Terminating {
				continue
			}
			if e.NodeName != "" {
				r.node = e.NodeName
			}
			if r.pod == "" {
				r.pod = x.in.Names.PodOf(s.NamespacedName, c.Addr.Addr())
			}
			r.hintNodes, r.hintZones = append(r.hintNodes, e.HintNodes...), append(r.hintZones, e.HintZones...)
		}
	}
	if p, ok := x.in.Names.Pod(r.pod); ok {
		r.podReason = p.Reason
	}
	return r
}

// keepUsed keeps the endpoints for programs, and their pods for the conclusion.
func (x *explainer) keepUsed(used []row) {
	for _, t := range x.d.Targets {
		i := slices.IndexFunc(used, func(r row) bool { return r.address == t.Addr.String() })
		r := used[i]
		x.e.Used = append(x.e.Used, Endpoint{Address: r.address, Pod: r.pod, Node: r.node, Masquerade: t.SNAT.Masquerade()})
		if r.pod != "" {
			x.pods[r.address] = fmt.Sprintf(" (%s)", x.shortPod(r.pod))
		}
	}
}

func (x *explainer) sayCount(used, total int, hints string) string {
	switch {
	case total == 1 && used == 0:
		return "The only endpoint can't be used:"
	case total == 1:
		return fmt.Sprintf("The only endpoint is used%s:", hints)
	case used == 0:
		return fmt.Sprintf("None of %d endpoints can be used:", total)
	case used == 1:
		return fmt.Sprintf("1 of %d endpoints is used%s:", total, hints)
	}
	return fmt.Sprintf("%d of %d endpoints are used%s:", used, total, hints)
}

// sayHints says which hints selected endpoints or, if all were ignored, why.
func (x *explainer) sayHints(s model.Selection) (which, ignored string) {
	zone := ""
	if n := x.ourNode(); n != nil {
		zone = n.Zone
	}
	switch s.Hints {
	case model.NodeHints:
		return " (all have hints; hints for this node apply)", ""
	case model.ZoneHints:
		return fmt.Sprintf(" (all have hints; hints for this node's zone %s apply)", zone), ""
	case model.NoHints:
	}
	some, all := false, true
	for _, e := range s.Candidates {
		if e.Ready {
			hinted := e.HintsNodes || e.HintsZones
			some, all = some || hinted, all && hinted
		}
	}
	switch {
	case !some:
		return "", ""
	case !all:
		return "", "hints are ignored: not every ready endpoint has them"
	case zone == "":
		return "", "hints are ignored: none is for this node, and its zone is not known"
	}
	return "", "hints are ignored: none is for this node or its zone " + zone
}

func (x *explainer) sayWhere(r row) string {
	where := "on " + r.node
	switch {
	case r.local:
		where = "on this node"
	case r.node == "":
		where = "on an unknown node"
	}
	if r.pod != "" {
		return x.shortPod(r.pod) + " " + where
	}
	return where
}

// shortPod leaves the namespace out of a pod's name if it is the Service's.
func (x *explainer) shortPod(pod string) string {
	return strings.TrimPrefix(pod, x.service.Namespace+"/")
}

func sayHintsOf(r row) string {
	text := ""
	for _, h := range []struct {
		list []string
		what string
	}{{r.hintNodes, "node"}, {r.hintZones, "zone"}} {
		switch len(h.list) {
		case 0:
		case 1:
			text += fmt.Sprintf(", for %s %s", h.what, h.list[0])
		default:
			text += fmt.Sprintf(", for %ss %s", h.what, strings.Join(h.list, ", "))
		}
	}
	if text == "" {
		return ", without hints"
	}
	return text
}

// sayExcluded says why a policy does not select an endpoint: it has a sentence for each Exclusion.
func sayExcluded(c model.Candidate, policy model.TrafficPolicy, r row) string {
	hints := func(what string, list []string) string {
		if len(list) == 0 {
			return "its hints are for other " + what
		}
		return fmt.Sprintf("its hints are for other %s: %s", what, strings.Join(list, ", "))
	}
	switch c.Excluded[policy] {
	case model.NotExcluded:
		return "usable, but not yet in the rules" // the objects are newer than the snapshot that decides
	case model.NotServing:
		switch {
		case c.Terminating:
			return "terminating and no longer serving"
		case r.podReason != "":
			return fmt.Sprintf("not ready (%s)", r.podReason)
		}
		return "not ready (readiness probe failing, or still starting?)"
	case model.NotLocal:
		return "not on this node"
	case model.ReadyOnesExist:
		return "terminating, and others are ready"
	case model.HintsOtherNodes:
		return hints("nodes", r.hintNodes)
	case model.HintsOtherZones:
		return hints("zones", r.hintZones)
	}
	return ""
}

// table returns a line of two columns for each endpoint, up to maxRows unless all are wanted.
func (x *explainer) table(list []row, said []string) []string {
	width, most := 0, maxRows
	if x.in.All {
		most = len(list)
	}
	for _, r := range list[:min(len(list), most)] {
		width = max(width, len(r.address))
	}
	var lines []string
	for i, r := range list {
		if i == most {
			return append(lines, fmt.Sprintf("  and %d more (--all lists them)", len(list)-i))
		}
		lines = append(lines, fmt.Sprintf("  %-*s  %s", width, r.address, said[i]))
	}
	return lines
}

// explainLacking says why there is no candidate.
func (x *explainer) explainLacking(s model.Selection) string {
	count := map[model.Mismatch]int{}
	for _, o := range s.Slices {
		count[o.Why] += o.Endpoints
	}
	problems := slices.ContainsFunc(x.snapshot.Problems(), func(p model.Problem) bool {
		return p.Object.Kind == "EndpointSlice" && x.sliceOf(p.Object.NamespacedName) != nil
	})
	of := "Service " + x.e.Service
	port := "its unnamed port"
	if name := x.d.Port.Name.Port; name != "" {
		port = fmt.Sprintf("port %q", name)
	}
	switch {
	case problems:
		return fmt.Sprintf("The EndpointSlices of %s have no valid endpoint: see the problems below.", of)
	case count[model.NoPort] > 0:
		x.advisePort()
		return fmt.Sprintf("No EndpointSlice of %s offers %s:", of, port)
	case count[model.OtherProtocol] > 0:
		x.advisePort()
		return fmt.Sprintf("No EndpointSlice of %s offers %s for %v:", of, port, x.d.Protocol)
	case count[model.OtherFamily] > 0:
		x.next("Do the pods have %v addresses? kubectl -n %s get pods -o jsonpath='{.items[*].status.podIPs}'", x.d.Port.Family, x.service.Namespace)
		return fmt.Sprintf("%s has no %v endpoints:", of, x.d.Port.Family)
	case len(x.foreignSlices()) > 0:
		return fmt.Sprintf("The EndpointSlices of %s are not for this proxy:", of)
	}
	x.adviseSelector()
	if len(s.Slices) > 0 {
		return fmt.Sprintf("The EndpointSlices of %s have no endpoints: most likely, its selector matches no pod.", of)
	}
	return of + " has no EndpointSlice: its selector matches no pod, or it has no selector and nobody created a slice."
}

// saySlice says why a slice offers nothing for the port. It is silent about slices without endpoints.
func (x *explainer) saySlice(o model.OtherSlice) string {
	who := fmt.Sprintf("EndpointSlice %s (%s)", o.Name, countOf(o.Endpoints))
	ports := ""
	if s := x.sliceOf(o.Name); s != nil {
		ports = slicePorts(*s)
	}
	switch {
	case o.Why == model.OtherFamily:
		return fmt.Sprintf("%s is not for %v", who, x.d.Port.Family)
	case o.Why == model.OverBudget:
		return who + " is beyond the budget of the Service's endpoints"
	case o.Endpoints == 0:
		return ""
	case ports == "":
		return who + " offers no port"
	case o.Why == model.OtherProtocol:
		return fmt.Sprintf("%s offers %s, and nothing for %v", who, ports, x.d.Protocol)
	}
	return fmt.Sprintf("%s offers %s", who, ports)
}

func countOf(endpoints int) string {
	if endpoints == 1 {
		return "1 endpoint"
	}
	return fmt.Sprintf("%d endpoints", endpoints)
}

// foreignSlices describes slices of the Service that no proxy uses.
func (x *explainer) foreignSlices() (lines []string) {
	for _, s := range x.slices {
		who := fmt.Sprintf("EndpointSlice %v (%s)", s, countOf(len(s.Endpoints)))
		_, headless := s.Labels[model.LabelHeadless]
		switch {
		case headless:
			lines = append(lines, who+" has the label service.kubernetes.io/headless: no proxy serves it")
		case s.AddressType == "FQDN":
			lines = append(lines, who+" has host names, not addresses")
		case s.AddressType != "IPv4" && s.AddressType != "IPv6":
			lines = append(lines, who+" has an invalid addressType")
		}
	}
	return lines
}
