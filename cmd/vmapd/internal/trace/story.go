package trace

import (
	"fmt"
	"net/netip"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/others"
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
	Silent   []netip.AddrPort `json:"silent,omitempty"`
	Tracking string           `json:"connectionTracking,omitempty"` // the state there, in the end

	Hints      []string       `json:"hints,omitempty"`
	Verdict    Verdict        `json:"verdict"`
	By         string         `json:"by,omitempty"` // the rule or policy that ended the packet's path, and its owner
	Rule       *Rule          `json:"rule,omitempty"`
	Endpoint   netip.AddrPort `json:"endpoint"`      // the destination in the end
	Pod        string         `json:"pod,omitempty"` // of the endpoint, if vmapd's decision has it
	Conclusion string         `json:"conclusion"`
	Remedy     string         `json:"remedy,omitempty"`  // "": nothing is known
	Differs    bool           `json:"differs,omitempty"` // from what vmapd expects

	translates bool // the destination is a Service's: a listener of vmapd's has it, or a rule has replaced it
	here       bool // something on this node keeps the answer away
	elsewhere  bool // something else does
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

// Write writes the story as text for people: the verdict, what to do, and the path. With all, look-ups of vmapd's that
// decide nothing are not folded.
func (s *Story) Write(t *report.Text, all bool) {
	s.writeVerdict(t)
	t.Say("")
	if s.Namespace != "" {
		t.Say("from %v, in the network namespace of %s", s.Source, s.Namespace)
	} else {
		t.Say("from %v", s.Source)
	}
	t.Say("to   %v/%s", s.Destination, s.Protocol)
	for _, a := range s.Silent {
		t.Say("A first packet went to %v, without an answer in time: the kernel chose again.", a)
	}
	for i, h := range s.Hooks {
		h.write(t, fmt.Sprintf("%d. ", i+1), "   ", all)
	}
	if packet := s.Answer.packet(); packet != "" {
		t.Say("%d. The answer came from %s.", len(s.Hooks)+1, packet)
		for _, h := range s.Answer.Hooks {
			h.write(t, "   ", "      ", all)
		}
		if s.Answer.Out != "" {
			t.Say("   It left by %s.", s.Answer.Out)
		}
	}
	if s.Tracking != "" {
		t.Say("connection tracking: %s", s.Tracking)
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
	case s.Expected == "", s.here:
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

// packet names the source and the kind of an answer, or is empty if no packet was seen.
func (a *Answer) packet() string {
	kind := map[AnswerKind]string{Accepted: "SYN and ACK", Reset: "reset", Replied: "a packet"}[a.Kind]
	switch {
	case !a.From.IsValid():
		return ""
	case a.Kind == Unreachable:
		return fmt.Sprintf("%v (ICMP: %s)", a.From.Addr(), a.Error)
	}
	return fmt.Sprintf("%v (%s)", a.From, kind)
}

func (h *Hook) write(t *report.Text, first, indent string, all bool) {
	title := string(h.Name)
	if h.In != "" {
		title += ", from " + h.In
	}
	if h.Out != "" {
		title += ", to " + h.Out
	}
	t.Say("%s%s", first, title)
	folded := 0
	for i, l := range h.Lines {
		if l.own && !all {
			if folded++; i+1 < len(h.Lines) && h.Lines[i+1].own {
				continue
			}
			t.Say("%s%s of vmapd matched (-v)", indent, report.Plural(folded, "rule"))
			folded = 0
			continue
		}
		level := report.Level("")
		if l.ends {
			level = report.Fail
		}
		t.Mark(level, "%s%s", indent, l.Text)
	}
}
