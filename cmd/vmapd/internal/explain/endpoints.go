package explain

import (
	"net/netip"
	"slices"

	"k8s.io/utils/ptr"

	"github.com/vmapd/vmapd/model"
)

// explainEndpoints lists the endpoints, with the reasons why some are not used.
func (x *explainer) explainEndpoints() {
	list := x.d.TrafficPolicy
	selection := x.in.Builder.Selection(x.d.Port.Name, x.d.Port.Family)
	out := &Endpoints{List: list.String(), Used: []Endpoint{}, Hints: "none"}
	if list == model.Cluster {
		out.Hints, out.HintsIgnored = hints(selection)
	}
	for _, c := range selection.Candidates {
		e := x.endpoint(c)
		i := slices.IndexFunc(x.d.Targets, func(t model.Target) bool { return t.Addr == c.Addr })
		if i < 0 {
			e.Excluded = exclusionNames[c.Excluded[list]]
			out.Unused = append(out.Unused, e)
			continue
		}
		e.SourceNAT, e.Masquerade = snatNames[x.d.Targets[i].SNAT], x.d.Targets[i].SNAT.Masquerade()
		out.Used = append(out.Used, e)
	}
	// The objects may be newer than the snapshot that decides.
	for _, t := range x.d.Targets {
		if !slices.ContainsFunc(selection.Candidates, func(c model.Candidate) bool { return c.Addr == t.Addr }) {
			out.Used = append(out.Used, Endpoint{
				Address: t.Addr.String(), Local: t.Local, State: "gone", SourceNAT: snatNames[t.SNAT], Masquerade: t.SNAT.Masquerade(),
			})
		}
	}
	for _, s := range selection.Slices {
		o := Slice{Name: s.Name.String(), Endpoints: s.Endpoints, Why: mismatchNames[s.Why]}
		if i := x.indexOf(s.Name); i >= 0 {
			o.Ports = portsOf(x.slices[i])
		}
		out.Slices = append(out.Slices, o)
	}
	out.Slices = append(out.Slices, x.foreignSlices()...)
	if len(out.Used) == 0 {
		out.Lacking = lacking(out, x.endpointProblems())
	}
	x.e.Endpoints = out
}

// endpoint describes a candidate. The snapshot has no names of nodes and zones; the slices do.
func (x *explainer) endpoint(c model.Candidate) Endpoint {
	out := Endpoint{Address: c.Addr.String(), Local: c.Local, Slices: texts(c.Slices), State: "notReady"}
	switch {
	case c.Ready:
		out.State = "ready"
	case c.Draining:
		out.State = "terminating"
	case c.Terminating:
		out.State = "terminated"
	}
	for _, s := range x.slices {
		if !slices.Contains(c.Slices, s.NamespacedName) {
			continue
		}
		for _, e := range s.Endpoints {
			if !hasFirst(e, c.Addr.Addr()) || isTerminating(e) != c.Terminating {
				continue
			}
			if e.NodeName != "" {
				out.Node = e.NodeName
			}
			if out.Pod == "" {
				out.Pod = x.in.Names.PodOf(s.NamespacedName, c.Addr.Addr())
			}
			out.HintNodes = append(out.HintNodes, e.HintNodes...)
			out.HintZones = append(out.HintZones, e.HintZones...)
		}
	}
	return out
}

// state returns the conditions of an endpoint in one word.
func state(e model.SliceEndpoint) string {
	switch {
	case ptr.Deref(e.Ready, true):
		return "ready"
	case !isTerminating(e):
		return "notReady"
	case ptr.Deref(e.Serving, true):
		return "terminating"
	}
	return "terminated"
}

func isTerminating(e model.SliceEndpoint) bool { return ptr.Deref(e.Terminating, false) }

// hasFirst reports whether an endpoint has an address: the first one, as others are not used.
func hasFirst(e model.SliceEndpoint, a netip.Addr) bool {
	return len(e.Addresses) > 0 && isAddr(e.Addresses[0], a)
}

// hints returns the hints that selected endpoints or, if all were ignored, the reason.
func hints(c model.Selection) (which, ignored string) {
	switch c.Hints {
	case model.NodeHints:
		return "node", ""
	case model.ZoneHints:
		return "zone", ""
	case model.NoHints:
	}
	some, all := false, true
	for _, e := range c.Candidates {
		if e.Ready {
			hinted := e.HintsNodes || e.HintsZones
			some, all = some || hinted, all && hinted
		}
	}
	switch {
	case !some:
		return "none", ""
	case !all:
		return "none", "someWithout"
	}
	return "none", "noneForUs"
}

// foreignSlices are slices of the Service that no proxy uses.
func (x *explainer) foreignSlices() []Slice {
	var list []Slice
	for _, s := range x.slices {
		out := Slice{Name: s.String(), Endpoints: len(s.Endpoints)}
		_, headless := s.Labels[model.LabelHeadless]
		switch {
		case headless:
			out.Why = "headlessLabel"
		case s.AddressType == "FQDN":
			out.Why = "notIP"
		case s.AddressType != "IPv4" && s.AddressType != "IPv6":
			out.Why = "invalid"
		default:
			continue
		}
		list = append(list, out)
	}
	return list
}

// endpointProblems reports whether some of the Service's slices have problems.
func (x *explainer) endpointProblems() bool {
	return slices.ContainsFunc(x.snapshot.Problems(), func(p model.Problem) bool {
		return p.Object.Kind == "EndpointSlice" && x.indexOf(p.Object.NamespacedName) >= 0
	})
}

// indexOf returns the index of one of the Service's slices, or -1.
func (x *explainer) indexOf(n model.NamespacedName) int {
	return slices.IndexFunc(x.slices, func(s model.EndpointSlice) bool { return s.NamespacedName == n })
}

// lacking returns why no endpoint can be used.
func lacking(e *Endpoints, problems bool) string {
	count := map[string]int{} // endpoints of other slices, by why
	for _, s := range e.Slices {
		count[s.Why] += s.Endpoints
	}
	switch {
	case slices.ContainsFunc(e.Unused, func(u Endpoint) bool { return u.Excluded == "notLocal" }):
		return "notLocal"
	case len(e.Unused) > 0:
		return "notServing"
	case problems:
		return "invalid"
	case count["noPort"] > 0:
		return "noPort"
	case count["otherProtocol"] > 0:
		return "otherProtocol"
	case count["otherFamily"] > 0:
		return "otherFamily"
	case count["headlessLabel"]+count["notIP"] > 0:
		return "leftToOthers"
	case len(e.Slices) > 0:
		return "noPods"
	}
	return "noSlices"
}
