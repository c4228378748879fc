package trace

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/others"
	"github.com/vmapd/vmapd/sync/conntrack"
)

// Tell makes a story of what was seen.
func Tell(in Input) Story {
	w := in.walk(in.First)
	s := Story{
		Source: w.first.Source, Destination: w.first.Dest, Protocol: w.first.Protocol.String(),
		Verdict: w.verdict, Endpoint: w.last.Dest, SourceSeen: w.last.Source, Out: w.out,
		Hooks: w.hooks, By: w.by, Expected: in.Expected, Untracked: w.untracked, UntrackedBy: w.untrackedBy,
		Redirect: in.Redirect,
	}
	if s.Verdict == Lost && w.lostAt == "after prerouting" && in.Route != "" {
		s.Verdict = NoRoute
	}
	if in.Expected != nil {
		s.Pod = in.Expected.Pods[s.Endpoint.String()]
	}
	if in.Entry != nil {
		s.State = in.Entry.State
	}
	for _, e := range in.Tracking {
		s.Tracking = append(s.Tracking, Moment{e.Change, e.State, e.Answered})
	}
	if s.Verdict == Lost && in.passed() { // a part of the events is missing
		s.Incomplete, s.Verdict, s.Endpoint = true, Forwarded, in.Entry.ReplySource
	}
	s.Answer = in.answer()
	accepted := s.Answer.Kind == Accepted || s.Answer.Kind == Replied
	s.Answer.Behind = accepted && s.Answer.Verdict == Forwarded && in.Dialed != "" && !in.Succeeded
	s.hint(&in, w)
	s.Differs = s.differs()
	s.Conclusion = s.tellUntracked() + s.conclude(&in, w)
	return s
}

// passed reports whether connection tracking says that the first packet was not lost in a hook: it makes an entry only
// at the end of a packet's way, behind all rules (nf_confirm of the kernel).
func (in *Input) passed() bool {
	isNew := func(e conntrack.Event) bool { return e.Change == conntrack.Began }
	return in.Entry != nil && (in.Entry.Answered || slices.ContainsFunc(in.Tracking, isNew))
}

// IsUnexplained reports whether the first packet or the answer is not tracked, and no rule was seen to say so.
func (s *Story) IsUnexplained() bool {
	return s.Untracked && s.UntrackedBy == nil || s.Answer.Untracked && s.Answer.UntrackedBy == nil
}

// answer tells the first packet of the other direction.
func (in *Input) answer() Answer {
	w := in.walk(in.Answer)
	if len(w.hooks) == 0 {
		if in.Entry != nil && in.Entry.Answered { // the trace has missed it
			return Answer{Kind: Replied, From: in.Entry.ReplySource}
		}
		if in.Succeeded {
			return Answer{Kind: Replied, From: in.walk(in.First).first.Dest}
		}
		return Answer{Kind: NoAnswer}
	}
	a := Answer{
		Kind: Replied, From: w.first.Source, Verdict: w.verdict, Out: w.out, By: w.by, Hooks: w.hooks,
		Untracked: w.untracked, UntrackedBy: w.untrackedBy,
	}
	switch p := w.first; {
	case p.IsICMP():
		a.Kind, a.Error = Unreachable, icmpError(p)
	case p.Protocol != model.TCP:
	case p.Flags&others.FlagRST != 0:
		a.Kind = Reset
	case p.Flags&(others.FlagSYN|others.FlagACK) == others.FlagSYN|others.FlagACK:
		a.Kind = Accepted
	}
	return a
}

// icmpError names an error: RFC 792 and RFC 4443.
func icmpError(p others.Packet) string {
	const unreachable4, exceeded4, unreachable6, tooBig6, exceeded6 = 3, 11, 1, 2, 3
	codes, is6 := map[uint8]string{
		0: "network unreachable", 1: "host unreachable", 2: "protocol unreachable", 3: "port unreachable",
		4: "fragmentation needed", 9: "administratively prohibited", 10: "administratively prohibited", 13: "administratively prohibited",
	}, p.Source.Addr().Is6()
	if is6 {
		codes = map[uint8]string{0: "no route", 1: "administratively prohibited", 3: "address unreachable", 4: "port unreachable"}
	}
	switch {
	case is6 && p.Type == tooBig6:
		return "packet too big"
	case is6 && p.Type == exceeded6, !is6 && p.Type == exceeded4:
		return "time exceeded"
	case (is6 && p.Type == unreachable6 || !is6 && p.Type == unreachable4) && codes[p.Code] != "":
		return codes[p.Code]
	}
	return fmt.Sprintf("ICMP type %d, code %d", p.Type, p.Code)
}

// translated reports whether the destination was replaced.
func (s *Story) translated() bool { return s.Endpoint != s.Destination }

// unknownSource reports whether the answer comes from an address that the client does not know: the kernel restores
// the Service's for tracked packets alone.
func (s *Story) unknownSource() bool {
	return s.Answer.Untracked && s.translated() && s.Answer.From == s.Endpoint
}

// hint adds what may help.
func (s *Story) hint(in *Input, w way) {
	hint := func(format string, args ...any) { s.Hints = append(s.Hints, fmt.Sprintf(format, args...)) }
	if s.Incomplete {
		hint("The packet was not seen after %s. Connection tracking has noted its connection, which it does behind all rules.", w.hooks[len(w.hooks)-1].Name)
	}
	if s.translated() && !s.Incomplete && !anyRule(w.hooks, func(l others.Line) bool { return l.DNAT }) {
		hint("No rule of nftables was seen to replace the destination: iptables-legacy, IPVS or an eBPF program did it.")
	}
	if s.Verdict == Lost || s.Answer.Verdict == Lost || s.IsUnexplained() {
		for _, suspect := range in.Suspects {
			hint("%s", suspect)
		}
	}
	if s.Redirect.IsValid() {
		hint("%v sent the client an ICMP redirect: the endpoint is a neighbour of the client's. That is no error.", s.Redirect)
	}
	if in.Untold != "" {
		hint("Connection tracking was asked for the state: %s.", in.Untold)
	}
	silent := s.Verdict == Forwarded && s.Answer.Kind == NoAnswer
	if silent && in.mayMiss(s) {
		hint("Rules before connection tracking may keep the answer from being tracked. " +
			"Such an answer to a replaced source is not visible.")
	}
	if silent && w.first.Protocol != model.TCP && in.Dialed != "" {
		hint("vmapd sent a datagram that is no request of the Service's protocol, and many servers do not answer that.")
	}
	if s.By != nil && s.By.Rule == nil && s.By.Owner == "" && isIPTables(*s.By) {
		hint("A policy of iptables is set by the command iptables -P %s DROP, for example by Docker. A rule that accepts the packet must come before.", s.By.Chain)
	}
	if in.Dialed != "" {
		hint("The connection that vmapd made itself: %s.", in.Dialed)
	}
}

// OnOneLink reports whether the first packet left to an endpoint by the interface by which it came, with the client's
// address.
func (s *Story) OnOneLink() bool {
	return s.translated() && s.SourceSeen == s.Source && s.Hooks[0].Name == others.Prerouting && s.Hooks[0].In == s.Out
}

// mayMiss reports whether an answer may be one that no rule of the tracer finds.
func (in *Input) mayMiss(s *Story) bool { return in.Early && s.SourceSeen != s.Source }

func anyRule(hooks []Hook, is func(others.Line) bool) bool {
	for _, h := range hooks {
		for _, c := range h.Chains {
			if slices.ContainsFunc(c.Rules, func(r Rule) bool { return is(r.line) }) {
				return true
			}
		}
	}
	return false
}

// isIPTables reports whether a chain is one of iptables-nft.
func isIPTables(d Decider) bool {
	return (d.Family == "ip" || d.Family == "ip6") &&
		slices.Contains([]string{"raw", "mangle", "nat", "filter", "security"}, d.Table) && d.Chain == strings.ToUpper(d.Chain)
}

// String says which rule or policy it is.
func (d *Decider) String() string {
	where := fmt.Sprintf("table %s %s, chain %s", d.Family, d.Table, d.Chain)
	switch {
	case d.Rule == nil:
		return where + ", by its policy"
	case d.Rule.Position == 0:
		return fmt.Sprintf("%s, by the rule with handle %d", where, d.Rule.Handle)
	}
	text := d.Rule.Text
	if d.Rule.Comment != "" {
		text = strings.TrimSpace(fmt.Sprintf("%s comment %q", text, d.Rule.Comment))
	}
	if text == "" {
		return fmt.Sprintf("%s, rule %d", where, d.Rule.Position)
	}
	return fmt.Sprintf("%s, rule %d (%s)", where, d.Rule.Position, text)
}

// whose says whose rule it is.
func (d *Decider) whose() string {
	switch {
	case d.Owner == "vmapd" && d.Reason != "":
		return ", by vmapd: " + d.Reason
	case d.Owner != "":
		return ", which is " + d.Owner + "'s"
	}
	return ", which is not vmapd's"
}

// conclude says in a sentence or two how it ended.
func (s *Story) conclude(in *Input, w way) string {
	switch s.Verdict {
	case Rejected:
		return fmt.Sprintf("rejected in %v%s.", s.By, s.By.whose())
	case Dropped:
		return fmt.Sprintf("dropped in %v%s.", s.By, s.By.whose())
	case Taken:
		return fmt.Sprintf("given to another program in %v%s.", s.By, s.By.whose())
	case NoRoute:
		return fmt.Sprintf("dropped, because the kernel has no way to %s: %s.", s.Endpoint.Addr(), in.Route)
	case Lost:
		return fmt.Sprintf("lost %s: no rule of nftables was seen to drop the packet.", w.lostAt)
	case Delivered:
		return fmt.Sprintf("delivered to %s on this node itself%s", at(s.Endpoint), s.tellAnswer(in))
	case Forwarded:
		by := ""
		if s.Out != "" {
			by = " by " + s.Out
		}
		return fmt.Sprintf("forwarded to %s%s%s", at(s.Endpoint), by, s.tellAnswer(in))
	}
	return "nothing was seen of its way."
}

// tellUntracked says that the first packet is not tracked, and why.
func (s *Story) tellUntracked() string {
	if !s.Untracked || s.translated() { // IPVS translates without connection tracking
		return ""
	}
	text := "not tracked" + because(s.UntrackedBy)
	if s.Expected == nil || s.Expected.Verdict != "notService" {
		text += ", so no Service can be applied"
	}
	return text + "; "
}

// because names the rule that keeps a packet from being tracked.
func because(by *Decider) string {
	if by != nil {
		return fmt.Sprintf(" because of %v%s", by, by.whose())
	}
	return ", though no rule of nftables was seen to say so"
}

// tellAnswer goes on about the answer.
func (s *Story) tellAnswer(in *Input) string {
	a := s.Answer
	var text string
	switch a.Kind {
	case Accepted:
		text = ", which accepted it"
	case Reset:
		text = ", which refused it with a TCP reset: nothing listens on that port there"
	case Unreachable:
		text = fmt.Sprintf("; %s answered with an ICMP error: %s", a.From.Addr(), a.Error)
		if a.Error == "port unreachable" && a.From.Addr() == s.Endpoint.Addr() {
			text += ", so nothing listens on that port there"
		}
		if in.Neighbour != "" {
			text += ", since " + in.Neighbour
		}
	case Replied:
		text = ", which answered"
	case NoAnswer:
		text = fmt.Sprintf(", which did not answer within %v", in.Waited)
		switch {
		case s.Untracked:
			text = fmt.Sprintf("; no %s packet came back within %v. ", strings.ToUpper(s.Protocol), in.Waited) +
				"ICMP errors about untracked connections are not visible"
		case in.mayMiss(s):
			text = fmt.Sprintf("; no answer was seen within %v", in.Waited)
		case in.Bridge != "" && in.Neighbour == "":
			text = fmt.Sprintf("; an answer takes that bridge past netfilter (%s): it comes from %v in place of %v, "+
				"and the client does not know that address", in.Bridge, s.Endpoint, s.Destination)
		}
		if in.Neighbour != "" {
			text += ": " + in.Neighbour
		}
		return text + "."
	}
	switch {
	case a.Verdict == Dropped, a.Verdict == Rejected:
		return fmt.Sprintf("%s. But the answer was dropped on its way back, in %v%s.", text, a.By, a.By.whose())
	case a.Verdict == Lost:
		return text + ". But the answer was lost on its way back: no rule of nftables was seen to drop it."
	case s.unknownSource():
		return fmt.Sprintf("%s. But the answer was not tracked%s: it came from %v in place of %v, "+
			"and the client does not know that address.", text, because(a.UntrackedBy), a.From, s.Destination)
	case a.Behind:
		return fmt.Sprintf("%s. But the answer was lost behind this node's rules, after it left by %s.", text, a.Out)
	default:
		return text + "."
	}
}

// differs reports whether what happened is not what vmapd decides.
func (s *Story) differs() bool {
	e := s.Expected
	if e == nil || s.Verdict == "" {
		return false
	}
	byVmapd := s.By != nil && s.By.Owner == "vmapd"
	switch e.Verdict {
	case "forwarded":
		return !s.arrived() || !slices.Contains(e.Endpoints, s.Endpoint.String())
	case "rejected":
		return s.Verdict != Rejected || !byVmapd
	case "dropped":
		return s.Verdict != Dropped || !byVmapd
	}
	return s.translated() || byVmapd
}
