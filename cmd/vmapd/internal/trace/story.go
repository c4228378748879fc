package trace

import (
	"net/netip"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/others"
	"github.com/vmapd/vmapd/sync/conntrack"
)

// Input is what was seen of one connection.
type Input struct {
	First, Answer []others.Event // of its first packet, and of the first packet of the other direction
	Redirect      netip.Addr     // who sent the client an ICMP redirect; the zero value: nobody
	Lines         []others.Line  // the rules in these events
	Bases         []others.Base
	Interfaces    map[uint32]string // names by index

	Entry     *conntrack.Entry // nil if connection tracking has none
	Tracking  []conntrack.Event
	Early     bool          // something is before connection tracking that may keep packets from being tracked
	Untold    string        // why events of connection tracking are missing
	Route     string        // why the kernel has no route, if it was asked and has none
	Neighbour string        // why the next hop cannot be reached, if it is known to be so
	Bridge    string        // why an answer does not pass netfilter, if client and endpoint are on one bridge
	Suspects  []string      // what may drop packets, or keep them from being tracked, without a trace
	Dialed    string        // how the connection ended that vmapd made itself
	Succeeded bool          // that connection was answered
	Waited    time.Duration // for an answer

	Expected *Expected
}

// Expected is the decision of vmapd about the connection.
type Expected struct {
	Verdict    string   `json:"verdict"` // as explain has it: forwarded, rejected, dropped, notService
	Endpoints  []string `json:"endpoints,omitempty"`
	Conclusion string   `json:"conclusion"`

	Pods map[string]string `json:"-"` // by endpoint
}

// Verdict is the end of the first packet's way.
type Verdict string

// The verdicts.
const (
	Forwarded Verdict = "forwarded" // it left this node, or went to a pod on it
	Delivered Verdict = "delivered" // to a process in this node's own network
	Rejected  Verdict = "rejected"  // a rule answered with an error
	Dropped   Verdict = "dropped"   // by a rule or a policy
	NoRoute   Verdict = "noRoute"   // the kernel found no way for it
	Taken     Verdict = "taken"     // a rule gave it to a program
	Lost      Verdict = "lost"      // it vanished between two hooks, or within one, where no rule of nftables was seen to match
)

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

// Story is what happened to a connection. Its fields are the facts; Hints, Differs and Conclusion
// are the same facts in sentences. The names in JSON do not change.
type Story struct {
	Source      netip.AddrPort `json:"source"`
	Destination netip.AddrPort `json:"destination"`
	Protocol    string         `json:"protocol"`

	Verdict    Verdict        `json:"verdict"`
	Endpoint   netip.AddrPort `json:"endpoint"`      // the destination in the end
	Pod        string         `json:"pod,omitempty"` // of the endpoint, if vmapd's decision has it
	SourceSeen netip.AddrPort `json:"sourceSeen"`    // the source in the end
	Out        string         `json:"out,omitempty"`
	Hooks      []Hook         `json:"hooks"`
	By         *Decider       `json:"by,omitempty"` // the rule or policy that ended the packet's way

	// Untracked: connection tracking was told to leave the first packet alone, so that no NAT applies to it.
	// UntrackedBy is the rule of nftables that did so, if it was one.
	Untracked   bool     `json:"untracked,omitempty"`
	UntrackedBy *Decider `json:"untrackedBy,omitempty"`

	// Incomplete is a packet whose way was not seen to its end, although connection tracking has its connection.
	Incomplete bool `json:"incomplete,omitempty"`

	Answer   Answer     `json:"answer"`
	Redirect netip.Addr `json:"redirect,omitzero"` // who sent the client an ICMP redirect
	State    string     `json:"state,omitempty"`   // of a TCP connection, in connection tracking
	Tracking []Moment   `json:"tracking,omitempty"`
	Expected *Expected  `json:"expected,omitempty"`

	Differs    bool     `json:"differs,omitempty"` // from what is expected
	Hints      []string `json:"hints,omitempty"`
	Conclusion string   `json:"conclusion"`
}

// Outcome is the end of the connection for its client, in the words of vmapd's decisions: forwarded,
// rejected, dropped, or notService if nothing of vmapd's had a part in it.
func (s *Story) Outcome() string {
	switch {
	case s.Verdict == Rejected, s.Answer.Kind == Reset, s.Answer.Kind == Unreachable:
		return "rejected"
	case !s.arrived(), s.Answer.Kind == NoAnswer && s.Protocol == model.TCP.String(), s.isAnswerLost():
		return "dropped"
	case !s.translated():
		return "notService"
	}
	return "forwarded"
}

// Answered reports whether the client has got an answer of the endpoint's, be it a refusal.
func (s *Story) Answered() bool { return s.arrived() && s.Answer.Kind != NoAnswer && !s.isAnswerLost() }

func (s *Story) arrived() bool { return s.Verdict == Forwarded || s.Verdict == Delivered }

// isAnswerLost reports whether there was an answer that the client has not got, or does not know as one.
func (s *Story) isAnswerLost() bool {
	return s.Answer.Verdict == Dropped || s.Answer.Verdict == Rejected || s.Answer.Verdict == Lost || s.unknownSource() || s.Answer.Behind
}

// Moment is a change of the connection in connection tracking.
type Moment struct {
	Change   conntrack.Change `json:"change"`
	State    string           `json:"state,omitempty"` // of TCP
	Answered bool             `json:"answered,omitempty"`
}

// Hook is one stop on a packet's way.
type Hook struct {
	Name   others.Hook `json:"hook"`
	In     string      `json:"in,omitempty"`  // interface
	Out    string      `json:"out,omitempty"` // interface
	Chains []Chain     `json:"chains,omitempty"`
	NAT                // by something that nftables does not show

	ended bool
}

// NAT has the addresses that were replaced.
type NAT struct {
	Destination *netip.AddrPort `json:"destination,omitempty"`
	Source      *netip.AddrPort `json:"source,omitempty"`
}

// Chain is a base chain with the rules that matched, also in the chains to which it led.
type Chain struct {
	Family string `json:"family"`
	Table  string `json:"table"`
	Chain  string `json:"chain"`
	Rules  []Rule `json:"rules,omitempty"`
	Policy string `json:"policy,omitempty"` // accept or drop, if no rule had decided
	NAT
}

// Rule is a rule that matched.
type Rule struct {
	Chain    string `json:"chain"`
	Position int    `json:"position,omitempty"` // from 1 on; 0 if the rule is not there any more
	Handle   uint64 `json:"handle"`
	Text     string `json:"text,omitempty"`
	Comment  string `json:"comment,omitempty"`
	Verdict  string `json:"verdict"`

	line others.Line
}

// Decider is a rule or a policy.
type Decider struct {
	Family string `json:"family"`
	Table  string `json:"table"`
	Rule   *Rule  `json:"rule,omitempty"`   // nil: the policy of Chain
	Chain  string `json:"chain"`            // where the rule is
	Owner  string `json:"owner"`            // vmapd, kube-proxy, or empty
	Reason string `json:"reason,omitempty"` // of vmapd's rules
}

// Answer is the first packet of the other direction, and its way.
type Answer struct {
	Kind    AnswerKind     `json:"kind"`
	From    netip.AddrPort `json:"from,omitzero"`
	Verdict Verdict        `json:"verdict,omitempty"` // of the answer's own way
	Out     string         `json:"out,omitempty"`
	By      *Decider       `json:"by,omitempty"`
	Error   string         `json:"error,omitempty"`      // of ICMP
	Behind  bool           `json:"lostBehind,omitempty"` // it left this node, and the client, which is vmapd itself, has not got it
	Hooks   []Hook         `json:"hooks,omitempty"`

	Untracked   bool     `json:"untracked,omitempty"`
	UntrackedBy *Decider `json:"untrackedBy,omitempty"`
}
