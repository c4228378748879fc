package trace

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/explain"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/others"
	"github.com/vmapd/vmapd/nft/tracer"
)

// Input is what was seen of one connection.
type Input struct {
	First, Answer path                 // of its first packet, and of the first packet of the other direction
	Silent        []netip.AddrPort     // endpoints of earlier first packets, which did not answer
	Route         string               // why the kernel has no route, if it was asked and has none
	Neighbour     string               // why the next hop cannot be reached, if it is known to be so
	Bridge        string               // why the client does not know the answer, on the bridge of both ends
	Suspects      []string             // what may drop packets, or keep them from being tracked, without a trace
	NoText        string               // why nft does not list rules; "": it does, or was not asked
	Namespace     string               // of the network, in which vmapd connected
	OnlySmall     string               // what says that full packets do not pass, after the handshake; "": they do
	Dialed        string               // how the connection ended that vmapd made itself; "": it made none
	Waited        time.Duration        // for an answer
	Expected      *explain.Explanation // vmapd's decision; nil: not known
	// Second is vmapd's decision about the address to which another program has translated the first packet; nil: it is
	// no Service's.
	Second *explain.Explanation
}

// succeeded is the end of a connection that vmapd made, and that was answered.
const succeeded = "it succeeded"

// isUnexplained reports whether a packet vanished or is not tracked, and no rule was seen to do so.
func (p *path) isUnexplained() bool { return p.verdict == Lost || p.untracked && p.untracks == nil }

// NewStory makes a story of what was seen.
func NewStory(in Input) Story {
	p := &in.First
	s := Story{
		Source: p.first.Source, Destination: p.first.Dest, Protocol: p.first.Protocol.String(), Hooks: p.hooks,
		Verdict: p.verdict, By: named(p.ended), Endpoint: p.last.Dest, Silent: in.Silent,
		Answer: in.answer(), Namespace: in.Namespace,
	}
	if p.ended != nil {
		s.Rule = &Rule{p.ended.Place, p.ended.Handle}
	}
	if p.verdict == Lost && in.Route != "" {
		s.Verdict = NoRoute
	}
	if p.verdict == Lost && in.Dialed == succeeded { // a part of the events is missing
		s.Verdict = Forwarded
		s.hint("The packet was not seen after %s, but it was answered.", p.hooks[len(p.hooks)-1].Name)
	}
	answer := s.reportAnswer(&in)
	s.translates = s.translated()
	if e := in.Expected; e != nil {
		s.translates = s.translates || e.Listener && s.Verdict == Delivered
		s.Endpoints, s.Expected = e.Used, e.Conclusion
		s.Differs = s.differs(e, isVmapds(p.ended) || isVmapds(in.Answer.ended))
		i := slices.IndexFunc(e.Used, func(u explain.Endpoint) bool { return u.Address == s.Endpoint })
		if i >= 0 {
			s.Pod = e.Used[i].Pod
		}
		if others := len(e.Used) - 1 - len(s.Silent); i >= 0 && others > 0 {
			s.hint("Not tried: %s of the Service (--each).", report.Plural(others, "more endpoint"))
		}
	}
	s.addHints(&in)
	isFailed := !s.Answered() || s.Outcome() == report.Rejected
	s.elsewhere = s.Verdict.arrived() && !s.Differs && !s.Answer.Lost && isFailed
	s.Conclusion, s.Remedy = s.conclude(&in, answer), s.remedy(&in)
	return s
}

func (s *Story) remedy(in *Input) string {
	rule := in.First.ended
	if s.Answer.Lost {
		rule = cmp.Or(in.Answer.ended, rule)
	}
	switch {
	case rule != nil && !isVmapds(rule):
		return fmt.Sprintf("change that rule or policy, or accept the connection before it: nft -a list chain %s %s %s.",
			rule.Place.Family, rule.Place.Table, rule.Place.Chain)
	case in.Second != nil:
		return "translate to an endpoint, or let clients connect to the Service's address"
	case in.OnlySmall != "":
		return "compare the MTUs on the path (ip link): of the node, of tunnels, and of the pod"
	case in.Neighbour != "":
		return "check that the pod still runs (ip neighbour), and the network plugin"
	case !s.Verdict.arrived():
	case s.translates && s.Outcome() == report.Rejected && s.Answer.From.Addr() == s.Endpoint.Addr():
		return "compare the Service's targetPort with the port on which the application listens"
	case s.elsewhere && s.Answer.Kind == NoAnswer:
		return "check the pod's firewall, NetworkPolicies on its node, and the network between"
	}
	return ""
}

// answer describes the first packet of the other direction, which the trace may have missed.
func (in *Input) answer() Answer {
	p := &in.Answer
	switch {
	case len(p.hooks) == 0 && in.Dialed == succeeded:
		return Answer{Kind: Replied}
	case len(p.hooks) == 0:
		return Answer{Kind: NoAnswer}
	}
	a := Answer{Kind: Replied, From: p.first.Source}
	for _, h := range p.hooks {
		if h.notable {
			a.Hooks = append(a.Hooks, h)
		}
	}
	if p.verdict == Forwarded {
		a.Out = p.out
	}
	switch first := p.first; {
	case first.IsICMP():
		a.Kind, a.Error = Unreachable, icmpError(first)
	case first.Protocol != model.TCP:
	case first.Flags&tracer.FlagRST != 0:
		a.Kind = Reset
	case first.Flags&(tracer.FlagSYN|tracer.FlagACK) == tracer.FlagSYN|tracer.FlagACK:
		a.Kind = Accepted
	}
	return a
}

// icmpError names an error: the codes of "destination unreachable" of RFC 792 and RFC 4443.
func icmpError(p tracer.Packet) string {
	const prohibited = "administratively prohibited"
	kind, names := uint8(3), map[uint8]string{
		0: "network unreachable", 1: "host unreachable", 3: "port unreachable", 9: prohibited, 10: prohibited, 13: prohibited,
	}
	if p.Source.Addr().Is6() {
		kind, names = 1, map[uint8]string{0: "no route", 1: prohibited, 3: "address unreachable", 4: "port unreachable"}
	}
	if name := names[p.Code]; name != "" && p.Type == kind {
		return name
	}
	return fmt.Sprintf("ICMP type %d, code %d", p.Type, p.Code)
}

func (s *Story) hint(format string, args ...any) {
	s.Hints = append(s.Hints, fmt.Sprintf(format, args...))
}

func (s *Story) addHints(in *Input) {
	switch {
	case !s.translated() || in.First.verdict == Lost || in.First.dnat != nil:
	case in.First.known:
		from := s.Source
		s.hint("Connection tracking already had an entry of this connection, with the endpoint of an earlier one: "+
			"conntrack -L -p %s --orig-src %v --sport %d shows it, and with -D in place of -L removes it.",
			s.Protocol, from.Addr(), from.Port())
	default:
		s.hint("No rule of nftables was seen to replace the destination: " +
			"iptables-legacy, IPVS or an eBPF program did it.")
	}
	s.Hints = append(s.Hints, in.Suspects...)
	if in.NoText != "" {
		s.hint("Some rules are named by their handles, because nft does not list them: %s.", in.NoText)
	}
	if in.Dialed != "" {
		what := "connection"
		if s.Protocol != model.TCP.String() {
			what = "datagram, which is no request of the Service's protocol,"
		}
		s.hint("The %s that vmapd made itself: %s.", what, in.Dialed)
	}
}

// conclude says in a sentence or two how it ended. answer goes on about the answer.
func (s *Story) conclude(in *Input, answer string) string {
	text := ""
	if in.First.untracked && !s.translated() { // IPVS translates without connection tracking
		text = "not tracked" + because(in.First.untracks) + ", so no Service can be applied; "
	}
	switch s.Verdict {
	case Rejected, Dropped:
		return fmt.Sprintf("%s%s by %s.", text, s.Verdict, s.By)
	case Taken:
		return fmt.Sprintf("%sgiven to another program in %s.", text, s.By)
	case NoRoute:
		to := s.Endpoint.Addr()
		return fmt.Sprintf("%sdropped, because the kernel does not route it to %s: %s.", text, to, in.Route)
	case Lost:
		last := in.First.hooks[len(in.First.hooks)-1]
		where := map[bool]string{true: "after", false: "in"}[last.ended]
		text += fmt.Sprintf("lost %s %s: no rule of nftables was seen to drop the packet.", where, last.Name)
		if s.translated() && s.Source.Addr() == s.Endpoint.Addr() {
			text += " It goes back to the client: does the pod's port of its bridge have hairpin mode (bridge -d link)?"
		}
		return text
	case Delivered:
		by := "on this node itself"
		if in.Expected != nil && in.Expected.Listener {
			by = "by vmapd's listener on this node, which connects to an endpoint"
		}
		return fmt.Sprintf("%sdelivered to %v %s%s.", text, s.Endpoint, by, answer)
	case Forwarded:
		by := ""
		if in.First.out != "" {
			by = " by " + in.First.out
		}
		if e := in.Second; e != nil {
			return fmt.Sprintf("%stranslated to %v by %s. That is an address of Service %s, and the kernel translates once: "+
				"the packet left%s%s.", text, s.Endpoint, cmp.Or(named(in.First.dnat), "iptables-legacy or a program of eBPF"),
				e.Service, by, answer)
		}
		return fmt.Sprintf("%sforwarded to %v%s%s.", text, s.Endpoint, by, answer)
	}
	return "its path was not seen."
}

func because(by *others.Line) string {
	if by != nil {
		return " because of " + named(by)
	}
	return ", though no rule of nftables was seen to say so"
}

// reportAnswer goes on about the answer, and notes if the client has not got it.
func (s *Story) reportAnswer(in *Input) (text string) {
	a, p := &s.Answer, &in.Answer
	switch a.Kind {
	case Accepted:
		text = ", which accepted it"
	case Reset:
		text = ", which refused it with a TCP reset: nothing listens on that port there"
	case Unreachable:
		text = fmt.Sprintf("; %s answered with an ICMP error: %s", a.From.Addr(), a.Error)
		if in.Neighbour != "" {
			text += ", since " + in.Neighbour
		}
	case Replied:
		text = ", which answered"
	case NoAnswer:
		text = fmt.Sprintf(", which did not answer within %v", in.Waited)
		if why := cmp.Or(in.Neighbour, in.Bridge); why != "" {
			text += ": " + why
		}
		a.Lost = in.Bridge != ""
	}
	if len(s.Silent) > 0 {
		text += "; before, no answer came from " + report.List(s.Silent, 0)
	}
	but := ""
	switch accepted := a.Kind == Accepted || a.Kind == Replied; {
	case p.verdict == Dropped, p.verdict == Rejected:
		but = "dropped on the return path, by " + named(p.ended)
	case p.verdict == Lost && in.Dialed != succeeded:
		but = "lost on the return path: no rule of nftables was seen to drop it"
	case p.untracked && s.translated() && a.From == s.Endpoint: // the Service's is restored for tracked packets alone
		but = fmt.Sprintf("not tracked%s: %s", because(p.untracks), replaced(a.From, s.Destination))
	case accepted && p.verdict == Forwarded && in.Dialed != "" && in.Dialed != succeeded:
		but = "lost after this node's rules, after it left by " + p.out
	default:
		return text + in.OnlySmall
	}
	a.Lost = true
	return text + ". But the answer was " + but
}

// replaced says that an answer keeps the endpoint's address.
func replaced(endpoint, destination netip.AddrPort) string {
	return fmt.Sprintf("it comes from %v in place of %v, and the client does not know that address", endpoint, destination)
}

func (s *Story) differs(e *explain.Explanation, byVmapd bool) bool {
	isEndpoint := func(u explain.Endpoint) bool { return u.Address == s.Endpoint }
	switch {
	case s.Verdict == "":
		return false
	case e.Listener && s.Verdict == Delivered: // it refuses by closing connections, also those that are to be dropped
		return e.Verdict == report.Rejected && s.Outcome() != report.Rejected
	case e.Verdict == report.Forwarded:
		return !s.Verdict.arrived() || byVmapd || !slices.ContainsFunc(e.Used, isEndpoint)
	case e.Verdict == report.NotService:
		return s.translated() || byVmapd
	}
	return string(e.Verdict) != string(s.Verdict) || !byVmapd
}

func isVmapds(l *others.Line) bool { return l != nil && l.Place.IsVmapds() }

// named names a rule or a policy, and its owner; nil has no name.
func named(l *others.Line) string {
	switch {
	case l == nil:
		return ""
	case isVmapds(l):
		return ruleText(*l) + ", which is vmapd's"
	}
	return ruleText(*l) + ", which is not vmapd's"
}
