package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/model"
)

// Explanation explains what happens to a connection: the facts that programs ask for, and sentences.
type Explanation struct {
	From    string     `json:"from"` // both ends, and the node that decides, in words
	To      string     `json:"to"`
	On      string     `json:"node"`
	Client  string     `json:"client"`              // the address
	Process bool       `json:"process,omitempty"`   // the client is a process of the node
	Dest    string     `json:"destination"`         // address:port/protocol
	Service string     `json:"service,omitempty"`   // namespace/name
	Used    []Endpoint `json:"endpoints,omitempty"` // those to which the connection may be forwarded
	// Verdict is forwarded, rejected, dropped or notService.
	Verdict string `json:"verdict"`

	Notes      []string `json:"notes,omitempty"` // which of several things a name stands for
	Steps      []Step   `json:"steps"`
	Problems   []string `json:"problems,omitempty"` // of the objects that concern the connection
	Next       []string `json:"next,omitempty"`     // advice, if the result is not the expected one
	Conclusion string   `json:"conclusion"`
}

// Step is one step of the explanation: a sentence, and lines below it.
type Step struct {
	Text  string   `json:"text"`
	Lines []string `json:"lines,omitempty"`
}

// Endpoint is one endpoint.
type Endpoint struct {
	Address    string `json:"address"`
	Pod        string `json:"pod,omitempty"` // namespace/name
	Node       string `json:"node,omitempty"`
	Masquerade bool   `json:"masquerade,omitempty"` // it has the node's address as the source
}

// verdictNames are the verdicts in JSON, verdictWords in sentences and behind --expect.
var (
	verdictNames = [...]string{
		model.NotOurs: "notService", model.Forwarded: "forwarded", model.Rejected: "rejected", model.Dropped: "dropped",
	}
	verdictWords = map[string]string{
		"notService": "not a Service", "forwarded": "forwarded", "rejected": "rejected", "dropped": "dropped",
	}
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
	return x.e
}

// explainer writes an explanation.
type explainer struct {
	in       Input
	snapshot *model.Snapshot
	family   *model.FamilySnapshot
	d        model.Decision
	service  model.Service         // the Service of the port
	slices   []model.EndpointSlice // its slices
	found    []finding             // if no Service has the destination
	pods     map[string]string     // the names of used endpoints' pods, as the conclusion has them, by address
	e        Explanation
}

func (x *explainer) explain() {
	x.e.Verdict, x.e.Notes = verdictNames[x.d.Verdict], x.in.Notes
	x.e.Client, x.e.Dest, x.e.Process = x.d.Source.String(), destination(x.d.Connection), x.d.Node
	x.explainEnds()
	if x.d.Frontend == nil {
		x.find()
		x.explainProblems()
		x.e.Conclusion = x.conclude()
		return
	}
	name := x.d.Port.Name
	x.service, x.e.Service = x.serviceOf(name), name.NamespacedName.String()
	for _, s := range x.in.Objects.EndpointSlices {
		if s.Namespace == name.Namespace && s.Labels[model.LabelServiceName] == name.Name {
			x.slices = append(x.slices, s)
		}
	}
	x.explainProblems()
	x.explainFrontend()
	if x.explainSourceRanges(); x.d.Why != model.SourceNotAllowed { // which drop the packet before the policies apply
		x.explainPolicy()
		x.explainEndpoints()
	}
	if x.d.Verdict == model.Forwarded {
		x.explainChoice()
		x.explainSourceAddress()
	}
	x.e.Conclusion = x.conclude()
}

func destination(c model.Connection) string { return fmt.Sprintf("%v/%v", c.Dest, c.Protocol) }

// step adds a step, with lines below it.
func (x *explainer) step(text string, lines ...string) {
	x.e.Steps = append(x.e.Steps, Step{Text: text, Lines: lines})
}

func (x *explainer) next(format string, args ...any) {
	x.e.Next = append(x.e.Next, fmt.Sprintf(format, args...))
}

// explainProblems collects the problems of the objects that concern the connection.
func (x *explainer) explainProblems() {
	for _, p := range x.snapshot.Problems() {
		name := p.Object.NamespacedName
		concerned := p.Object.Kind == "Node" || p.Object.Kind == "ServiceCIDR" && x.d.Frontend == nil ||
			p.Object.Kind == "EndpointSlice" && x.sliceOf(name) != nil ||
			p.Object.Kind == "Service" && (name == x.service.NamespacedName ||
				slices.ContainsFunc(x.found, func(f finding) bool { return f.service == name }))
		if concerned {
			x.e.Problems = append(x.e.Problems, p.Error())
		}
	}
}

// sliceOf returns one of the Service's slices, or nil.
func (x *explainer) sliceOf(n model.NamespacedName) *model.EndpointSlice {
	for i := range x.slices {
		if x.slices[i].NamespacedName == n {
			return &x.slices[i]
		}
	}
	return nil
}

func (x *explainer) conclude() string {
	dest := x.d.Dest.Addr()
	switch x.d.Verdict {
	case model.Forwarded:
		var list []string
		for _, t := range x.d.Targets {
			list = append(list, t.Addr.String()+x.pods[t.Addr.String()])
		}
		return "forwarded to " + someOf(list)
	case model.Rejected:
		why := fmt.Sprintf("%v is a cluster IP, and its Service has no port %d/%v", dest, x.d.Dest.Port(), x.d.Protocol)
		if x.d.Why == model.NoEndpoints {
			why = fmt.Sprintf("%s has no endpoint that can answer", x.portText())
		}
		how := `the client gets an ICMP error: "port unreachable"`
		switch {
		case dest.IsLoopback():
			how = "the listener on loopback rejects it"
		case x.d.Protocol == model.TCP:
			how = `the client gets a TCP reset: "connection refused"`
		}
		return fmt.Sprintf("rejected: %s (%s)", why, how)
	case model.Dropped:
		why := fmt.Sprintf("%v is in a range of cluster IPs, and no Service served on this node has it", dest)
		if x.d.Why == model.NoLocalEndpoints {
			why = "the policy is Local, and no endpoint on this node can answer"
		}
		if x.d.Why == model.SourceNotAllowed {
			why = x.e.Client + " is not in loadBalancerSourceRanges"
		}
		return fmt.Sprintf("dropped: %s (the client gets no answer, and times out)", why)
	case model.NotOurs:
	}
	return fmt.Sprintf("not a Service: the connection continues to %s unchanged", x.e.Dest)
}

// portText names the service port.
func (x *explainer) portText() string {
	if x.d.Port.Name.Port == "" {
		return fmt.Sprintf("Service %s, its unnamed port,", x.e.Service)
	}
	return fmt.Sprintf("Service %s, port %q,", x.e.Service, x.d.Port.Name.Port)
}

const (
	fewAddresses = 3
	maxRows      = 10
)

// someOf lists addresses or, if they are many, returns their number.
func someOf(list []string) string {
	switch n := len(list); {
	case n == 1:
		return list[0]
	case n <= fewAddresses:
		return strings.Join(list[:n-1], ", ") + " or " + list[n-1]
	default:
		return fmt.Sprintf("one of %d endpoints", n)
	}
}

func firstFew(list []string) string {
	if len(list) > fewAddresses {
		return strings.Join(list[:fewAddresses], ", ") + ", ..."
	}
	return strings.Join(list, ", ")
}

func texts[T interface{ String() string }](list []T) string {
	out := make([]string, 0, len(list))
	for _, v := range list {
		out = append(out, v.String())
	}
	return strings.Join(out, ", ")
}
