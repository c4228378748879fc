// Package explain explains in words what happens to a connection on a node, if a Service does not work.
//
//	model.Decide ─────────┐
//	Builder.Selection ────┼──> Explanation: facts, steps, conclusion ──> text, JSON
//	the objects as given ─┘
//
// It decides nothing: [model.Decide] decides about the connection, and [model.Builder.Selection]
// has the reasons why endpoints are not used. The objects only add names: an endpoint's node and pod, the
// zone of a hint, the Service of an address that is not served, and the selector that matches no pod.
package explain

import (
	"errors"
	"fmt"
	"net/netip"
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
	Differs    bool     `json:"kernelDiffers,omitempty"` // from what the daemon wants
}

// Step is one step of the explanation: a sentence, and lines below it.
type Step struct {
	Text  string   `json:"text"`
	Lines []string `json:"lines,omitempty"`
}

// Endpoint is one endpoint.
type Endpoint struct {
	Address    netip.AddrPort `json:"address"`
	Pod        string         `json:"pod,omitempty"` // namespace/name
	Node       string         `json:"node,omitempty"`
	Masquerade bool           `json:"masquerade,omitempty"` // it has the node's address as the source
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
	if e.Differs {
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
	slices  []names.SliceObject // its slices, and their endpoints by address
	own     map[netip.Addr][]names.Endpoint
	about   []model.ObjectRef // what the connection is about, for the problems
	// unserved is the Service that has the destination, which is not served.
	unserved string
	lines    []string // for the next step
	e        Explanation
}

// Explain explains what happens to a connection.
func Explain(in Input) Explanation {
	d := in.Decide()
	if in.ByListeners {
		d.Targets = slices.Clone(d.Targets)
		for i := range d.Targets {
			d.Targets[i].SNAT = model.ByForwarder
		}
	}
	x := explainer{in: in, family: in.Snapshot.Family(model.FamilyOf(in.Dest.Addr())), d: d}
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
	for _, p := range in.Snapshot.Problems {
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
			x.slices = append(x.slices, s)
			x.about = append(x.about, model.ObjectRef{Kind: "EndpointSlice", NamespacedName: s.NamespacedName})
		}
	}
	x.own = (&names.Directory{Slices: x.slices}).ByAddress()
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

func (x *explainer) line(format string, args ...any) {
	x.lines = append(x.lines, fmt.Sprintf(format, args...))
}

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
			text := u.Address.String()
			if u.Pod != "" {
				text += " (" + path.Base(u.Pod) + ")"
			}
			list = append(list, text)
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
	case x.unserved != "":
		why = fmt.Sprintf("Service %s does not serve %s: see its problems", x.unserved, x.e.Dest)
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
	if len(list) > few {
		return fmt.Sprintf("one of %d endpoints", len(list))
	}
	last := list[len(list)-1]
	return strings.TrimPrefix(strings.Join(list[:len(list)-1], ", ")+" or "+last, " or ")
}

// Compare adds a step: that the kernel's rules of a backend agree with what the daemon wants, in what way they differ,
// or why they were not compared. late is what is not programmed yet; "": nothing.
func (e *Explanation) Compare(backend, differs, notCompared, late string) {
	text := fmt.Sprintf("the kernel rules agree (backend %s)", backend)
	switch {
	case differs != "":
		text = fmt.Sprintf("the kernel rules differ (backend %s): %s", backend, differs)
		e.Conclusion, e.Differs = e.Conclusion+"; but the kernel differs from what the daemon wants", true
		e.Next = append(e.Next,
			"Why does the kernel differ? vmapd doctor --all lists all differences; vmapd trace follows one connection.")
	case notCompared != "":
		text = "the kernel rules were not compared: " + notCompared
	}
	step := Step{Text: "Source: the running daemon; " + text + "."}
	if late != "" {
		step.Lines = []string{late}
	}
	e.Steps = append(e.Steps, step)
}

// Input is a connection, with the objects and the configuration that decide about it.
type Input struct {
	names.Answer
	Objects  *names.Directory // all, also those that the proxy ignores
	Config   model.Config
	Snapshot *model.Snapshot // decides
	// Builder made the snapshot, and knows what that leaves out.
	Builder interface {
		Selection(name model.ServicePortName, f model.Family) model.Selection
		Claimants(v model.VIP) []model.ServicePortName
	}
	// ByListeners: a listener of vmapd's serves every Service, and makes connections of its own.
	ByListeners bool
}

// NewInput finds the ends of a connection, and checks the node. The input has no Builder and no Snapshot yet.
func NewInput(d *names.Directory, c model.Config, q names.Query) (in Input, err error) {
	answer, err := d.Resolve(q)
	if err != nil {
		return in, errors.New(model.OneLine(err.Error())) // nothing has checked names in manifests
	}
	c.NodeName = answer.NodeName
	if err := d.CheckNode(c.NodeName); err != nil && c.NodeName != "" {
		return in, err
	}
	in = Input{Answer: answer, Objects: d, Config: c}
	if in.Interface = q.Interface; in.Node && !in.Source.IsValid() {
		in.Source, err = in.nodeAddress()
	}
	return in, err
}

// Compile makes the snapshot of the objects.
func (in *Input) Compile() {
	b := in.Objects.Builder(in.Config)
	in.Builder, in.Snapshot = b, b.Snapshot()
}

// nodeAddress returns the source of a connection that this node makes: a loopback address if the destination is one,
// and otherwise the node's primary address.
func (in *Input) nodeAddress() (netip.Addr, error) {
	family := model.FamilyOf(in.Dest.Addr())
	if in.Dest.Addr().IsLoopback() {
		return family.Loopback(), nil
	}
	if n, _ := in.Objects.Node(in.Config.NodeName); n != nil {
		for _, a := range names.Addrs(n.Addresses) {
			if model.FamilyOf(a) == family {
				return a, nil
			}
		}
	}
	return netip.Addr{}, fmt.Errorf("--from: the %v address of the node %q is not known", family, in.Config.NodeName)
}

// Decide returns what the model decides.
func (in *Input) Decide() model.Decision {
	c := in.Connection
	own := in.Snapshot.Family(model.FamilyOf(c.Dest.Addr())).NodeAddrs
	if c.Node = c.Node || c.Source.IsLoopback() || slices.Contains(own, c.Source); c.Node {
		c.Interface = ""
	}
	return model.Decide(in.Snapshot, c)
}

// ErrUnexpected begins the error of a connection that is not the expected one.
var ErrUnexpected = errors.New("expected")

// Expectation is the expected result of a connection. The zero value expects nothing.
type Expectation struct {
	outcome  report.Outcome
	endpoint string
}

// ParseExpectation reads VERDICT[=ENDPOINT]; "" expects nothing.
func ParseExpectation(s string) (w Expectation, err error) {
	text, endpoint, found := strings.Cut(s, "=")
	outcome, known := map[string]report.Outcome{
		"": "", "forwarded": report.Forwarded, "rejected": report.Rejected, "dropped": report.Dropped,
		"not-a-service": report.NotService, string(report.NotService): report.NotService,
	}[text]
	w = Expectation{outcome, endpoint}
	switch {
	case !known:
		return w, fmt.Errorf("unknown result %q (forwarded, rejected, dropped, not-a-service)", text)
	case found && (w.outcome != report.Forwarded || endpoint == ""):
		return w, fmt.Errorf("want an endpoint after forwarded=; got %q", s)
	}
	return w, nil
}

// Check returns how a connection differs from the expectation.
func (w Expectation) Check(outcome report.Outcome, conclusion string, endpoints []Endpoint) error {
	is := func(u Endpoint) bool {
		forms := []string{u.Address.String(), u.Address.Addr().String(), u.Pod, path.Base(u.Pod)}
		return slices.Contains(forms, strings.TrimPrefix(w.endpoint, "pod/"))
	}
	switch {
	case w.outcome == "":
	case w.outcome != outcome:
		return fmt.Errorf("%w %s, got: %s", ErrUnexpected, w.outcome, model.OneLine(conclusion))
	case w.endpoint != "" && !slices.ContainsFunc(endpoints, is):
		return fmt.Errorf("%w the endpoint %s, got: %s", ErrUnexpected, w.endpoint, model.OneLine(conclusion))
	}
	return nil
}
