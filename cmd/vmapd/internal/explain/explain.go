package explain

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
)

// Explanation explains what happens to a connection: the facts that programs ask for, and sentences.
type Explanation struct {
	From    string         `json:"from"` // both ends, and the node that decides, in words
	To      string         `json:"to"`
	On      string         `json:"node"`
	Client  string         `json:"client"`              // the address
	Pod     string         `json:"pod,omitempty"`       // namespace/name, if the client is one that is known
	Dest    string         `json:"destination"`         // address:port/protocol
	Service string         `json:"service,omitempty"`   // namespace/name
	Used    []Endpoint     `json:"endpoints,omitempty"` // those to which the connection may be forwarded
	Verdict report.Outcome `json:"verdict"`
	// Listener: one of vmapd's on the node accepts the connection, and connects to an endpoint.
	Listener bool `json:"listener,omitempty"`

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

// Write writes the explanation as text for people. Each sentence is a line, for programs that search.
func (e Explanation) Write(t *report.Text) {
	t.Say("from %s", e.From)
	t.Say("to   %s", e.To)
	t.Say("on   %s", e.On)
	t.Say("")
	for i, s := range e.Steps {
		t.Say("%d. %s", i+1, s.Text)
		for _, l := range s.Lines {
			t.Say("   %s", l)
		}
	}
	t.Say("")
	for _, p := range e.Problems {
		t.Mark(report.Warn, "problem: %s", p)
	}
	for _, n := range e.Next {
		t.Say("next: %s", n)
	}
	if len(e.Next)+len(e.Problems) > 0 {
		t.Say("")
	}
	level := e.Verdict.Level()
	if strings.HasSuffix(e.Conclusion, kernelDiffers) {
		level = report.Fail
	}
	t.Mark(level, "=> %s", e.Conclusion)
}

type explainer struct {
	in      Input
	family  *model.FamilySnapshot
	d       model.Decision
	node    *model.Node         // the one that decides; nil: it is not known
	service names.ServiceObject // the Service of the port
	own     names.Directory     // its slices
	about   []model.ObjectRef   // what the connection is about, for the problems
	lines   []string            // for the next step
	e       Explanation
}

// Explain explains what happens to a connection.
func Explain(in Input) Explanation {
	s, d := cmp.Or(in.Snapshot, in.Builder.Snapshot()), in.Decide()
	if in.ByListeners {
		d.Targets = slices.Clone(d.Targets)
		for i := range d.Targets {
			d.Targets[i].SNAT = model.ByForwarder
		}
	}
	x := explainer{in: in, family: s.Family(model.FamilyOf(in.Dest.Addr())), d: d}
	x.node, _ = in.Objects.Node(in.Config.NodeName)
	x.e.Verdict, x.e.Client = report.OutcomeOf(d.Verdict), d.Source.String()
	x.e.Listener = d.Frontend != nil && (in.ByListeners || d.Dest.Addr().IsLoopback())
	x.e.Dest = fmt.Sprintf("%v/%v", d.Dest, d.Protocol)
	x.explainEnds()
	if d.Frontend == nil {
		x.explainUnserved()
	} else {
		x.explainService(d.Port.Name.NamespacedName)
	}
	for _, p := range s.Problems() {
		if p.Object.Kind == "Node" || slices.Contains(x.about, p.Object) {
			x.e.Problems = append(x.e.Problems, p.Error())
		}
	}
	x.e.Conclusion = x.conclude()
	return x.e
}

func (x *explainer) explainService(name model.NamespacedName) {
	x.e.Service, x.about = name.String(), []model.ObjectRef{{Kind: "Service", NamespacedName: name}}
	if s := x.in.Objects.Service(name); s != nil {
		x.service = *s
	}
	for _, s := range x.in.Objects.Slices {
		if s.Namespace == name.Namespace && s.Labels[model.LabelServiceName] == name.Name {
			x.own.Slices = append(x.own.Slices, s)
			x.about = append(x.about, model.ObjectRef{Kind: "EndpointSlice", NamespacedName: s.NamespacedName})
		}
	}
	x.explainFrontend()
	if x.explainSourceRanges(); x.d.Why != model.SourceNotAllowed { // which drop the packet before the policies apply
		x.explainPolicy()
		x.explainEndpoints()
	}
	if x.d.Verdict == model.Forwarded {
		x.explainChoice()
		x.explainSourceAddress()
	}
}

// line adds a line below the next step.
func (x *explainer) line(format string, args ...any) {
	x.lines = append(x.lines, fmt.Sprintf(format, args...))
}

// step adds a step, with the lines below it.
func (x *explainer) step(format string, args ...any) {
	x.e.Steps = append(x.e.Steps, Step{fmt.Sprintf(format, args...), x.lines})
	x.lines = nil
}

func (x *explainer) next(format string, args ...any) {
	x.e.Next = append(x.e.Next, fmt.Sprintf(format, args...))
}

func (x *explainer) conclude() string {
	addr, why, how := x.d.Dest.Addr(), "", "the client gets no answer, and times out"
	switch {
	case x.d.Verdict == model.Forwarded:
		var list []string
		for _, u := range x.e.Used {
			if u.Pod != "" {
				u.Address += " (" + path.Base(u.Pod) + ")"
			}
			list = append(list, u.Address)
		}
		return "forwarded to " + someOf(list)
	case x.d.Verdict == model.NotOurs:
		return fmt.Sprintf("not a Service: the connection continues to %s unchanged", x.e.Dest)
	case x.d.Why == model.NoEndpoints:
		why = fmt.Sprintf("Service %s, %s, has no endpoint that can answer", x.e.Service, x.portText())
	case x.d.Why == model.NoLocalEndpoints:
		why = "the policy is Local, and no endpoint on this node can answer"
	case x.d.Why == model.SourceNotAllowed:
		why = x.e.Client + " is not in loadBalancerSourceRanges"
	case x.d.Verdict == model.Rejected:
		why = fmt.Sprintf("%v is a cluster IP, and its Service has no port %s", addr, x.port())
	default:
		why = fmt.Sprintf("%v is in a range of cluster IPs, and no Service served on this node has it", addr)
	}
	switch {
	case x.d.Verdict != model.Rejected:
	case addr.IsLoopback():
		how = "the listener on loopback rejects it"
	case x.d.Protocol == model.TCP:
		how = `the client gets a TCP reset: "connection refused"`
	default:
		how = `the client gets an ICMP error: "port unreachable"`
	}
	return fmt.Sprintf("%s: %s (%s)", x.e.Verdict, why, how)
}

func (x *explainer) port() string { return fmt.Sprintf("%d/%v", x.d.Dest.Port(), x.d.Protocol) }

func (x *explainer) portText() string {
	if x.d.Port.Name.Port == "" {
		return "its unnamed port"
	}
	return fmt.Sprintf("port %q", x.d.Port.Name.Port)
}

const maxRows = 10

// someOf lists addresses or, if they are many, returns their number.
func someOf(list []string) string {
	const few = 3
	switch n := len(list); {
	case n == 1:
		return list[0]
	case n <= few:
		return strings.Join(list[:n-1], ", ") + " or " + list[n-1]
	default:
		return fmt.Sprintf("one of %d endpoints", n)
	}
}

// Daemon compares the daemon's decision with the kernel.
type Daemon struct {
	Pending int    // changes that wait for a sync
	Error   string // of the last sync
	// Kernel are the differences of the backend's rules from what the daemon wants, if there are any. NotCompared is
	// the reason if they mean nothing for this connection.
	Backend, Kernel, NotCompared string
}

// kernelDiffers is the end of a conclusion that the kernel's rules do not have.
const kernelDiffers = "; but the kernel differs from what the daemon wants"

// Compare adds the comparison to an explanation, as its last step.
func (e *Explanation) Compare(d Daemon) {
	x := explainer{e: *e}
	source := fmt.Sprintf("the kernel rules agree (backend %s)", d.Backend)
	switch {
	case d.Kernel != "":
		source = fmt.Sprintf("the kernel rules differ (backend %s): %s", d.Backend, d.Kernel)
		x.e.Conclusion += kernelDiffers
		x.next("Why does the kernel differ? vmapd doctor has all differences; vmapd trace follows one connection.")
	case d.NotCompared != "":
		source = "the kernel rules were not compared: " + d.NotCompared
	}
	switch {
	case d.Error != "":
		x.line("The last sync failed: %s", d.Error)
	case d.Pending > 0:
		x.line("%d changes of Services and EndpointSlices are not programmed yet.", d.Pending)
	}
	x.step("Source: the running daemon; %s.", source)
	*e = x.e
}
