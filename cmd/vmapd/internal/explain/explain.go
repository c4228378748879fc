package explain

import (
	"slices"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/model"
)

// Explain explains what happens to a connection.
func Explain(in Input) Explanation {
	snapshot := in.Snapshot
	if snapshot == nil {
		snapshot = in.Builder.Snapshot()
	}
	if in.Names == nil {
		in.Names = &names.Directory{}
	}
	family := snapshot.Family(model.FamilyOf(in.Dest.Addr()))
	c := in.Connection
	if c.Source.IsLoopback() || slices.Contains(family.NodeAddrs, c.Source) {
		c.Node = true
	}
	if c.Node {
		c.Interface = ""
	}
	x := explainer{in: in, snapshot: snapshot, family: family, d: model.Decide(snapshot, c)}
	if in.ByListeners {
		x.d.Targets = slices.Clone(x.d.Targets)
		for i := range x.d.Targets {
			x.d.Targets[i].SNAT = model.ByForwarder
		}
	}
	x.explain()
	x.e.all = in.All
	x.e.say()
	return x.e
}

// explainer collects the facts.
type explainer struct {
	in       Input
	snapshot *model.Snapshot
	family   *model.FamilySnapshot
	d        model.Decision
	service  model.Service         // the Service of the port
	slices   []model.EndpointSlice // its slices
	e        Explanation
}

func (x *explainer) explain() {
	x.e.Verdict, x.e.Reason = verdictNames[x.d.Verdict], reasonNames[x.d.Why]
	x.e.Notes = x.in.Notes
	x.e.Node = Node{Name: x.in.Config.NodeName}
	for _, n := range x.in.Objects.Nodes {
		if n.Name == x.in.Config.NodeName {
			x.e.Node.Known, x.e.Node.Zone = true, n.Zone
		}
	}
	x.explainClient()
	x.explainDestination()
	x.explainProblems()
	if x.d.Frontend == nil {
		return
	}
	x.explainSourceRanges()
	if x.d.Why == model.SourceNotAllowed {
		return // the packet is dropped before the policies apply
	}
	x.explainPolicy()
	x.explainEndpoints()
	x.explainPods()
	if x.d.Verdict == model.Forwarded {
		x.e.Balancing = &Balancing{
			Algorithm:       x.d.Port.Algorithm.String(),
			AffinitySeconds: int(x.d.Port.Affinity.Seconds()),
		}
		if t, ok := x.d.Chosen(); ok && x.d.Port.Algorithm.HasTable() {
			x.e.Balancing.Endpoint = t.Addr.String()
		}
	}
}

// explainProblems collects the problems of the objects that concern the connection.
func (x *explainer) explainProblems() {
	for _, p := range x.snapshot.Problems() {
		name := p.Object.NamespacedName
		isFound := func(f Finding) bool { return f.Service == name.String() }
		concerned := p.Object.Kind == "Node" || p.Object.Kind == "ServiceCIDR" && x.d.Frontend == nil ||
			p.Object.Kind == "EndpointSlice" && x.indexOf(name) >= 0 ||
			p.Object.Kind == "Service" && (name == x.service.NamespacedName || slices.ContainsFunc(x.e.Destination.Findings, isFound))
		if concerned {
			x.e.Problems = append(x.e.Problems, p.Error())
		}
	}
}

func (x *explainer) explainSourceRanges() {
	fe, sp := x.d.Frontend, x.d.Port
	if len(x.service.SourceRanges) == 0 {
		return
	}
	r := &SourceRanges{Ranges: x.service.SourceRanges, Applies: fe.Restricted, Allowed: true}
	if fe.Restricted {
		r.Ranges = texts(sp.SourceRanges)
		r.Allowed = x.d.Why != model.SourceNotAllowed
		r.Self = sp.NodeAllowed
	}
	x.e.Ranges = r
}

func (x *explainer) explainPolicy() {
	p := &Policy{Field: "externalTrafficPolicy", Value: "Cluster"}
	if x.d.Frontend.Kind == model.ClusterIP {
		p.Field = "internalTrafficPolicy"
	}
	if x.d.Frontend.TrafficPolicy == model.Local {
		p.Value = "Local"
	}
	switch {
	case x.d.Why == model.FromPodInside:
		p.ShortCircuit = "pod"
	case x.d.Why == model.FromNodeInside, x.d.Why == model.LoopbackForwarder && x.d.Frontend.ShortCircuit:
		p.ShortCircuit = "node"
	}
	x.e.Policy = p
}

func texts[T interface{ String() string }](list []T) []string {
	out := make([]string, 0, len(list))
	for _, v := range list {
		out = append(out, v.String())
	}
	return out
}
