package explain

import (
	"fmt"
	"slices"
	"strings"
)

func (e *Explanation) sayEndpoints() Step {
	eps := e.Endpoints
	total := len(eps.Used) + len(eps.Unused)
	var s Step
	switch {
	case total == 0:
		s.Text = e.sayLacking()
	case total == 1 && len(eps.Used) == 0:
		s.Text = "The only endpoint can't be used:"
	case total == 1:
		s.Text = fmt.Sprintf("The only endpoint is used%s:", e.sayWhichUsed())
	case len(eps.Used) == 0:
		s.Text = fmt.Sprintf("None of %d endpoints can be used:", total)
	case len(eps.Used) == 1:
		s.Text = fmt.Sprintf("1 of %d endpoints is used%s:", total, e.sayWhichUsed())
	default:
		s.Text = fmt.Sprintf("%d of %d endpoints are used%s:", len(eps.Used), total, e.sayWhichUsed())
	}
	s.Lines = append(s.Lines, e.table(eps.Used, e.sayUsed)...)
	if len(eps.Used) > 0 && len(eps.Unused) > 0 {
		s.Lines = append(s.Lines, "not used:")
	}
	s.Lines = append(s.Lines, e.table(eps.Unused, e.sayUnused)...)
	if total > 0 {
		s.Lines = append(s.Lines, e.sayIgnoredHints())
	}
	for _, o := range eps.Slices {
		s.Lines = append(s.Lines, e.saySlice(o))
	}
	s.Lines = slices.DeleteFunc(s.Lines, func(line string) bool { return line == "" })
	return s
}

// sayWhichUsed names the rule that selected the endpoints, unless all ready ones are used.
func (e *Explanation) sayWhichUsed() string {
	switch {
	case e.Endpoints.Used[0].State == "terminating":
		return " (none is ready, so terminating endpoints that still serve are used)"
	case e.Endpoints.Hints == "node":
		return " (all have hints; hints for this node apply)"
	case e.Endpoints.Hints == "zone":
		return fmt.Sprintf(" (all have hints; hints for this node's zone %s apply)", e.Node.Zone)
	}
	return ""
}

func (e *Explanation) sayIgnoredHints() string {
	switch {
	case e.Endpoints.HintsIgnored == "someWithout":
		return "hints are ignored: not every ready endpoint has them"
	case e.Endpoints.HintsIgnored == "noneForUs" && e.Node.Zone == "":
		return "hints are ignored: none is for this node, and its zone is not known"
	case e.Endpoints.HintsIgnored == "noneForUs":
		return "hints are ignored: none is for this node or its zone " + e.Node.Zone
	}
	return ""
}

func (e *Explanation) sayUsed(u Endpoint) string {
	text := e.sayWhere(u)
	switch u.State {
	case "terminating":
		text += ", terminating"
	case "gone":
		text += ", in no EndpointSlice any more"
	}
	if u.SourceNAT == "hairpin" {
		text += ", the client itself"
	}
	if e.Endpoints.Hints != "none" || e.Endpoints.HintsIgnored != "" {
		text += sayHints(u)
	}
	return text
}

func (e *Explanation) sayWhere(u Endpoint) string {
	where := "on " + u.Node
	switch {
	case u.Local:
		where = "on this node"
	case u.Node == "":
		where = "on an unknown node"
	}
	if u.Pod != "" {
		return e.shortPod(u.Pod) + " " + where
	}
	return where
}

// shortPod leaves the namespace out of a pod's name if it is the Service's.
func (e *Explanation) shortPod(pod string) string {
	return strings.TrimPrefix(pod, e.Destination.Service.Namespace+"/")
}

func sayHints(u Endpoint) string {
	var text string
	if len(u.HintNodes) > 0 {
		text += ", for " + plural(u.HintNodes, "node")
	}
	if len(u.HintZones) > 0 {
		text += ", for " + plural(u.HintZones, "zone")
	}
	if text == "" {
		return ", without hints"
	}
	return text
}

func plural(list []string, what string) string {
	if len(list) > 1 {
		what += "s"
	}
	return what + " " + strings.Join(list, ", ")
}

func (e *Explanation) sayUnused(u Endpoint) string {
	return fmt.Sprintf("%s; %s, EndpointSlice %s", sayExcluded(u), e.sayWhere(u), strings.Join(u.Slices, ", "))
}

// sayExcluded has a sentence for each of exclusionNames.
func sayExcluded(u Endpoint) string {
	switch u.Excluded {
	case "":
		return "usable, but not yet in the rules" // the objects are newer than the snapshot that decides
	case "notServing":
		return sayNotServing(u)
	case "notLocal":
		return "not on this node"
	case "readyOnesExist":
		return "terminating, and others are ready"
	case "hintsOtherNodes":
		return "its hints are for other nodes" + sayHintsAfter(u.HintNodes)
	case "hintsOtherZones":
		return "its hints are for other zones" + sayHintsAfter(u.HintZones)
	}
	return ""
}

func sayNotServing(u Endpoint) string {
	switch {
	case u.State == "terminated":
		return "terminating and no longer serving"
	case u.PodReason != "":
		return fmt.Sprintf("not ready (%s)", u.PodReason)
	}
	return "not ready (readiness probe failing, or still starting?)"
}

func sayHintsAfter(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return ": " + strings.Join(list, ", ")
}

const maxRows = 10

// table returns a line of two columns for each endpoint, up to maxRows unless all are wanted.
func (e *Explanation) table(list []Endpoint, say func(Endpoint) string) []string {
	width, most := 0, maxRows
	if e.all {
		most = len(list)
	}
	for _, e := range list[:min(len(list), most)] {
		width = max(width, len(e.Address))
	}
	var lines []string
	for i, e := range list {
		if i == most {
			lines = append(lines, fmt.Sprintf("  and %d more (--all lists them)", len(list)-i))
			break
		}
		lines = append(lines, fmt.Sprintf("  %-*s  %s", width, e.Address, say(e)))
	}
	return lines
}

// sayLacking describes why there is no candidate.
func (e *Explanation) sayLacking() string {
	sp := e.Destination.Service
	text := map[string]string{
		"noPort":        "No EndpointSlice of Service {service} offers {port}:",
		"otherProtocol": "No EndpointSlice of Service {service} offers {port} for {protocol}:",
		"otherFamily":   "Service {service} has no {family} endpoints:",
		"leftToOthers":  "The EndpointSlices of Service {service} are not for this proxy:",
		"invalid":       "The EndpointSlices of Service {service} have no valid endpoint: see the problems below.",
		"noPods":        "The EndpointSlices of Service {service} have no endpoints: most likely, its selector matches no pod.",
		"noSlices":      "Service {service} has no EndpointSlice: its selector matches no pod, or it has no selector and nobody created a slice.",
	}[e.Endpoints.Lacking]
	return strings.NewReplacer("{service}", sp.String(), "{port}", sp.portText(), "{protocol}", e.Destination.Protocol, "{family}", sp.Family).Replace(text)
}

// saySlice describes why a slice offers nothing for the port. It is silent about slices without
// endpoints, and about those of the other family if others are used.
func (e *Explanation) saySlice(o Slice) string {
	who := fmt.Sprintf("EndpointSlice %s (%d endpoints)", o.Name, o.Endpoints)
	if o.Endpoints == 1 {
		who = fmt.Sprintf("EndpointSlice %s (1 endpoint)", o.Name)
	}
	text := map[string]string{
		"otherFamily":   " is not for " + e.Destination.Service.Family,
		"headlessLabel": " has the label service.kubernetes.io/headless: no proxy serves it",
		"notIP":         " has host names, not addresses",
		"invalid":       " has an invalid addressType",
		"overBudget":    " is beyond the budget of the Service's endpoints",
	}[o.Why]
	switch {
	case o.Why == "otherFamily" && e.Endpoints.Lacking == "":
		return ""
	case text != "":
		return who + text
	case o.Endpoints == 0:
		return ""
	case len(o.Ports) == 0:
		return who + " offers no port"
	case o.Why == "otherProtocol":
		return fmt.Sprintf("%s offers %s, and nothing for %s", who, portTexts(o.Ports), e.Destination.Protocol)
	}
	return fmt.Sprintf("%s offers %s", who, portTexts(o.Ports))
}
