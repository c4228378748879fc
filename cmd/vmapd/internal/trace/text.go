package trace

import (
	"fmt"
	"strings"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/nft/others"
	"github.com/vmapd/vmapd/sync/conntrack"
)

// Write writes the story as text for people.
func (s *Story) Write(t *report.Text) {
	t.Say("from %v", s.Source)
	t.Say("to   %v/%s", s.Destination, s.Protocol)
	if s.Expected != nil {
		t.Wrap("vmapd decides: "+s.Expected.Conclusion, "", "  ")
	}
	t.Say("")
	for i, h := range s.Hooks {
		t.Say("%d. %s", i+1, h.title())
		h.write(t.Say)
	}
	if len(s.Answer.Hooks) > 0 {
		t.Say("%d. The answer came from %s (%s).", len(s.Hooks)+1, s.Answer.source(), s.Answer.kindText())
		for _, h := range s.Answer.Hooks {
			if h.worthTelling() {
				t.Say("   %s", h.title())
				h.write(func(format string, args ...any) { t.Say("   "+format, args...) })
			}
		}
		if s.Answer.Verdict == Forwarded && s.Answer.Out != "" {
			t.Say("   It left by %s.", s.Answer.Out)
		}
	}
	if len(s.Tracking) > 0 {
		t.Say("connection tracking: %s", tracked(s.Tracking))
	}
	t.Say("")
	for _, h := range s.Hints {
		t.Wrap(h, "note: ", "  ")
	}
	if len(s.Hints) > 0 {
		t.Say("")
	}
	level := report.OK
	if !s.Answered() || s.Differs {
		level = report.Fail
	}
	t.Verdict(level, "%s", s.Conclusion)
	switch {
	case s.Differs:
		t.Say("MISMATCH: this is not what vmapd decides.")
	case s.Expected != nil:
		t.Say("This is what vmapd decides.")
	}
}

// tracked tells the changes of a connection in the words of connection tracking.
func tracked(moments []Moment) string {
	var words []string
	answered := false
	add := func(word string) {
		if word != "" && (len(words) == 0 || words[len(words)-1] != word) {
			words = append(words, word)
		}
	}
	for _, m := range moments {
		if m.Change == conntrack.Began {
			add("new")
		}
		add(m.State)
		if m.Answered && !answered {
			add("answered")
			answered = true
		}
		if m.Change == conntrack.Ended {
			add("removed")
		}
	}
	return strings.Join(words, ", ")
}

func (a *Answer) source() string {
	if a.From.Port() == 0 {
		return a.From.Addr().String()
	}
	return a.From.String()
}

func (a *Answer) kindText() string {
	switch a.Kind {
	case Accepted:
		return "SYN and ACK"
	case Reset:
		return "reset"
	case Unreachable:
		return "ICMP: " + a.Error
	default:
		return "a packet"
	}
}

// title names the hook and the interfaces.
func (h *Hook) title() string {
	text := string(h.Name)
	switch {
	case h.Name == others.Prerouting && h.In != "":
		text += ", from " + h.In
	case h.Name == others.Forward && h.In != "" && h.Out != "":
		text += ", from " + h.In + " to " + h.Out
	case h.Name == others.Output && h.Out != "", h.Name == others.Postrouting && h.Out != "":
		text += ", to " + h.Out
	}
	return text
}

// worthTelling reports whether a rule decided at this hook, or marked the packet.
func (h *Hook) worthTelling() bool {
	for _, c := range h.Chains {
		if c.Policy == "drop" {
			return true
		}
		for _, r := range c.Rules {
			if r.Verdict == "drop" || r.Verdict == "queue" || r.changesPacket() {
				return true
			}
		}
	}
	return false
}

// changesPacket reports whether the rule is another program's, and sets a mark or keeps the packet from being tracked.
func (r *Rule) changesPacket() bool {
	return (r.line.Marks || r.line.Untracks) && owner(r.line.Place) != "vmapd"
}

// write writes the rules that decided something or changed the packet. Those that count packets are in the JSON.
func (h *Hook) write(line func(format string, args ...any)) {
	for _, c := range h.Chains {
		for _, r := range c.Rules {
			if r.Verdict == "continue" && !r.changesPacket() {
				continue
			}
			line("   %s %s, %s%s", c.Family, c.Table, r.Chain, r.text())
		}
		if c.Policy != "" {
			line("   %s %s, %s: policy %s", c.Family, c.Table, c.Chain, c.Policy)
		}
		c.NAT.write(line)
	}
	h.NAT.write(line)
}

func (n NAT) write(line func(format string, args ...any)) {
	if n.Destination != nil {
		line("   The destination is %v now.", *n.Destination)
	}
	if n.Source != nil {
		line("   The source is %v now.", *n.Source)
	}
}

// text is the rule's text, and its verdict if the text does not end with it.
func (r *Rule) text() string {
	text := r.Text
	if r.Position == 0 {
		text = fmt.Sprintf(", handle %d", r.Handle)
	} else {
		text = fmt.Sprintf(" rule %d: %s", r.Position, text)
	}
	if r.Comment != "" {
		text += fmt.Sprintf(" comment %q", r.Comment)
	}
	if r.Verdict != "continue" && !strings.HasSuffix(r.Text, r.Verdict) {
		text += " => " + r.Verdict
	}
	return text
}
