package trace

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/explain"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/others"
	"github.com/vmapd/vmapd/nft/tracer"
)

// Verdict is the end of a packet's path.
type Verdict string

// The verdicts.
const (
	Forwarded Verdict = "forwarded" // it left this node, or went to a pod on it
	Delivered Verdict = "delivered" // to a process in this node's own network
	Rejected  Verdict = "rejected"  // a rule answered with an error
	Dropped   Verdict = "dropped"   // by a rule or a policy
	NoRoute   Verdict = "noRoute"   // the kernel found no route for it
	Taken     Verdict = "taken"     // a rule gave it to a program
	Lost      Verdict = "lost"      // between two hooks, or within one, by no rule of nftables that was seen
)

// arrived reports whether the packet left this node, or came to a process on it.
func (v Verdict) arrived() bool { return v == Forwarded || v == Delivered }

// AnswerKind is the kind of the first packet of the other direction.
type AnswerKind string

// The kinds.
const (
	NoAnswer    AnswerKind = "none"
	Accepted    AnswerKind = "accepted"    // a TCP connection
	Reset       AnswerKind = "reset"       // TCP: nothing listens on the port
	Unreachable AnswerKind = "unreachable" // an ICMP error
	Replied     AnswerKind = "replied"     // with a datagram
)

// Story is what happened to a connection, in the order of its text. The names in JSON do not change.
type Story struct {
	Source      netip.AddrPort `json:"source"`
	Namespace   string         `json:"namespace,omitempty"` // of the network, in which vmapd connected
	Destination netip.AddrPort `json:"destination"`
	Protocol    string         `json:"protocol"`
	Expected    string         `json:"expected,omitempty"` // what vmapd expects; "": not known

	Hooks  []Hook `json:"hooks"`
	Answer Answer `json:"answer"`
	// Silent are endpoints that did not answer in time, so that the kernel chose again. Hooks are those of the last
	// choice.
	Silent []netip.AddrPort `json:"silent,omitempty"`

	Hints      []string       `json:"hints,omitempty"`
	Verdict    Verdict        `json:"verdict"`
	By         string         `json:"by,omitempty"` // the rule or policy that ended the packet's path, and its owner
	Rule       *Rule          `json:"rule,omitempty"`
	Endpoint   netip.AddrPort `json:"endpoint"`      // the destination in the end
	Pod        string         `json:"pod,omitempty"` // of the endpoint, if vmapd's decision has it
	Conclusion string         `json:"conclusion"`
	Remedy     string         `json:"remedy,omitempty"`  // "": nothing is known
	Differs    bool           `json:"differs,omitempty"` // from what vmapd expects

	Endpoints []explain.Endpoint `json:"-"` // of the Service, to which vmapd may forward the connection

	translates bool // the destination is a Service's: a listener of vmapd's has it, or a rule has replaced it
	elsewhere  bool // nothing on this node is known to keep the answer away
}

// Rule is where nft finds a rule, or the chain with a policy, which has no handle.
type Rule struct {
	others.Place
	Handle uint64 `json:"handle,omitempty"`
}

// Answer is the first packet of the other direction.
type Answer struct {
	Kind  AnswerKind     `json:"kind"`
	From  netip.AddrPort `json:"from,omitzero"`
	Error string         `json:"error,omitempty"` // of ICMP
	Hooks []Hook         `json:"hooks,omitempty"` // where a rule dropped it, or another program's changed it
	Out   string         `json:"out,omitempty"`   // the interface by which it left
	Lost  bool           `json:"lost,omitempty"`  // the client has not got it, or does not know it as an answer
}

// Outcome is the end of the connection for its client: not a Service if nothing of vmapd's had a part in it.
func (s *Story) Outcome() report.Outcome {
	switch {
	case s.Verdict == Rejected, s.Answer.Kind == Reset, s.Answer.Kind == Unreachable:
		return report.Rejected
	case !s.Verdict.arrived(), s.Answer.Kind == NoAnswer && s.Protocol == model.TCP.String(), s.Answer.Lost:
		return report.Dropped
	case !s.translates:
		return report.NotService
	}
	return report.Forwarded
}

// Answered reports whether the client has got an answer of the endpoint's, be it a refusal.
func (s *Story) Answered() bool {
	return s.Verdict.arrived() && s.Answer.Kind != NoAnswer && !s.Answer.Lost
}

func (s *Story) translated() bool { return s.Endpoint != s.Destination }

// Write writes the story as text for people: the verdict, what to do, and the path.
func (s *Story) Write(t *report.Text) {
	s.writeVerdict(t)
	t.Say("")
	where := ""
	if s.Namespace != "" {
		where = ", in the network namespace of " + s.Namespace
	}
	t.Say("from %v%s", s.Source, where)
	t.Say("to   %v/%s", s.Destination, s.Protocol)
	for i, h := range s.Hooks {
		h.write(t, fmt.Sprintf("%d. ", i+1), "   ")
	}
	a := &s.Answer
	if !a.From.IsValid() {
		return
	}
	from := strings.TrimSuffix(a.From.String(), ":0") // ICMP has no ports
	t.Say("%d. The answer came from %s (%s).", len(s.Hooks)+1, from, a.Kind)
	for _, h := range a.Hooks {
		h.write(t, "   ", "      ")
	}
	if a.Out != "" {
		t.Say("   It left by %s.", a.Out)
	}
}

func (s *Story) writeVerdict(t *report.Text) {
	level := report.OK
	if !s.Answered() || s.Differs {
		level = report.Fail
	}
	t.Verdict(level, "%s", s.Conclusion)
	if s.Remedy != "" {
		t.Wrap(s.Remedy, "   -> ", "      ")
	}
	switch {
	case s.Differs:
		t.Paragraph(report.Fail, "MISMATCH: vmapd expects: "+s.Expected, "", "  ")
	case s.Expected == "", s.Answer.Lost:
	case s.elsewhere:
		t.Say("vmapd expected this; the failure is elsewhere.")
	case s.Verdict.arrived():
		t.Say("This is what vmapd expects.")
	default:
		t.Wrap("This is what vmapd expects: "+s.Expected, "", "  ")
	}
	for _, h := range s.Hints {
		t.Wrap(h, "note: ", "  ")
	}
}

func (h *Hook) write(t *report.Text, first, indent string) {
	title := string(h.Name)
	if h.In != "" {
		title += ", from " + h.In
	}
	if h.Out != "" {
		title += ", to " + h.Out
	}
	t.Say("%s%s", first, title)
	for i, line := range h.Lines {
		if h.ends && i+1 == len(h.Lines) {
			t.Mark(report.Fail, "%s%s", indent, line)
		} else {
			t.Say("%s%s", indent, line)
		}
	}
}

// Hook is one stop on a packet's path.
type Hook struct {
	Name  others.Hook `json:"hook"`
	In    string      `json:"in,omitempty"`    // interface
	Out   string      `json:"out,omitempty"`   // interface
	Lines []string    `json:"lines,omitempty"` // rules that decided something or changed the packet, its new addresses

	ends    bool // the last line ends the packet's path
	notable bool // a rule ended the packet's path here or, if it is another program's, changed the packet
	ended   bool
}

func (h *Hook) line(format string, args ...any) {
	h.Lines = append(h.Lines, fmt.Sprintf(format, args...))
}

// folded stands for the rules of vmapd's at a hook that decide nothing against the packet.
const folded = "Rules of vmapd matched (-v)."

// path is a packet's path through the kernel.
type path struct {
	first, last tracer.Packet // as it came, and as it was seen last
	hooks       []Hook
	verdict     Verdict
	mark        uint32
	out         string // the interface, or ""
	outIndex    uint32
	known       bool // connection tracking had an entry of the connection, with an answer
	untracked   bool
	// What ended the path, replaced the destination, and was the last one to say that the packet is not tracked; nil: no
	// rule and no policy was seen to do so.
	ended, dnat, untracks *others.Line

	line  func(tracer.Event) others.Line // nil: rules are not known
	names map[uint32]string              // of interfaces
	ours  bool                           // the base chain is one of a tracer
}

// endOf are the verdicts that end a packet's path.
var endOf = map[tracer.Code]Verdict{tracer.Drop: Dropped, tracer.Queue: Taken, tracer.Stolen: Taken}

const loopback = 1 // the index of lo in every network namespace

// complete reports whether nothing more follows. What leaves by loopback comes back at once.
func (p *path) complete() bool {
	return p.verdict != "" && p.verdict != Lost && !(p.verdict == Forwarded && p.outIndex == loopback)
}

// follow follows the events of one packet. line returns the rule of an event, and names are those of interfaces.
func follow(events []tracer.Event, line func(tracer.Event) others.Line, names map[uint32]string) path {
	p := path{line: line, names: names}
	for _, e := range events {
		if p.mark = e.Mark; e.Packet != nil {
			p.enter(e)
		}
		if len(p.hooks) > 0 { // the beginning was seen
			p.step(e, &p.hooks[len(p.hooks)-1])
		}
	}
	p.end()
	return p
}

// enter begins a base chain, which shows the packet as it is now. At each hook, the first one is a tracer's.
func (p *path) enter(e tracer.Event) {
	p.ours, p.outIndex = e.Place.IsTracers(), e.Out
	if hook, _ := e.Stage(); p.ours && (len(p.hooks) == 0 || p.hooks[len(p.hooks)-1].Name != hook) {
		p.hooks = append(p.hooks, Hook{Name: hook})
	}
	if len(p.hooks) == 0 {
		return
	}
	h := &p.hooks[len(p.hooks)-1]
	h.In, h.Out = p.names[e.In], p.names[e.Out]
	if p.first == (tracer.Packet{}) {
		p.first, p.last = *e.Packet, *e.Packet
	}
	if to := e.Packet.Dest; to != p.last.Dest {
		h.line("The destination is %v now.", to)
	}
	if from := e.Packet.Source; from != p.last.Source {
		h.line("The source is %v now.", from)
	}
	p.last = *e.Packet
}

// step notes what a rule or a policy does to the packet, and the verdict that ends its path.
func (p *path) step(e tracer.Event, h *Hook) {
	isPolicy := e.Kind == tracer.Policy
	if p.ours {
		p.untracked, p.known = p.untracked || e.Matches(tracer.Untracked), p.known || e.Matches(tracer.Known)
		_, stage := e.Stage()
		h.ended = h.ended || stage == tracer.End && isPolicy
		return
	}
	if !isPolicy && e.Rule == 0 { // the chain has ended
		return
	}
	l := others.Line{Place: e.Place, Handle: e.Rule}
	if !isPolicy && p.line != nil {
		l = p.line(e)
	}
	if l.DNAT {
		p.dnat = &l
	}
	if l.Untracks && !p.untracked {
		p.untracks = &l
	}
	end := endOf[e.Code]
	if end == Dropped && l.Rejects {
		end = Rejected
	}
	if end != "" {
		p.verdict, p.ended = end, &l
	}
	text, verdict := ruleText(l), verdictText(e)
	changes := (l.Marks || l.Untracks) && !isVmapds(&l)
	h.ends, h.notable = end != "", h.notable || changes || p.verdict != ""
	switch {
	case isPolicy && end != Dropped, !isPolicy && verdict == "" && !changes:
	case isVmapds(&l) && end == "" && l.Text == "":
		if !slices.Contains(h.Lines, folded) {
			h.line(folded)
		}
	case verdict != "" && !(l.Decides && strings.Contains(l.Text, verdict)):
		h.line("%s => %s", text, verdict)
	default:
		h.line("%s", text)
	}
}

// end notes the verdict of a packet that no rule has ended.
func (p *path) end() {
	if !p.untracked {
		p.untracks = nil // a rule behind connection tracking has no effect
	}
	if p.verdict != "" || len(p.hooks) == 0 {
		return
	}
	last := p.hooks[len(p.hooks)-1]
	p.out = last.Out
	switch {
	case last.ended && last.Name == others.Postrouting:
		p.verdict = Forwarded
	case last.ended && last.Name == others.Input:
		p.verdict = Delivered
	default:
		p.verdict = Lost
	}
}

// arrival returns the interface by which the packet came in; "": a process of this node sent it.
func (p *path) arrival() string {
	if len(p.hooks) > 0 && p.hooks[0].Name == others.Prerouting {
		return p.hooks[0].In
	}
	return ""
}

// noRoute returns why the kernel routes the packet nowhere, if it vanished between two hooks and that is known.
func (p *path) noRoute() string {
	if p.verdict != Lost || !p.hooks[len(p.hooks)-1].ended {
		return ""
	}
	return noRoute(p.last, p.mark, p.arrival())
}

// verdictText is the verdict of a rule that matched; "": the next rule.
func verdictText(e tracer.Event) string {
	name, ok := map[tracer.Code]string{
		tracer.Drop: "drop", tracer.Accept: "accept", tracer.Stolen: "stolen", tracer.Queue: "queue",
		tracer.Continue: "", tracer.Break: "", tracer.Returned: "return", tracer.Jump: "jump", tracer.Goto: "goto",
	}[e.Code]
	if !ok {
		name = fmt.Sprintf("verdict %d", e.Code)
	}
	return strings.TrimSpace(name + " " + e.Target)
}

// ruleText names a rule, or the policy of its chain if it has no handle.
func ruleText(l others.Line) string {
	switch {
	case l.Handle == 0:
		return fmt.Sprintf("%v, by its policy", l.Place)
	case l.Position == 0: // it is not there any more
		return fmt.Sprintf("%v, by the rule with handle %d", l.Place, l.Handle)
	}
	text := fmt.Sprintf("%v, rule %d", l.Place, l.Position)
	if l.Text != "" {
		text += " (" + l.Text + ")"
	}
	return text
}
