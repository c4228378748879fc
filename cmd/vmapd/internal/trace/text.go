package trace

import (
	"fmt"
	"io"
	"strings"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/others"
	"github.com/vmapd/vmapd/sync/conntrack"
)

// WriteText writes the story as text for people.
func (s *Story) WriteText(w io.Writer) error {
	var out strings.Builder
	// Names of tables and comments are other people's, and the output goes to a terminal.
	line := func(format string, args ...any) {
		out.WriteString(model.OneLine(fmt.Sprintf(format, args...)) + "\n")
	}
	line("from %v", s.Source)
	line("to   %v/%s", s.Destination, s.Protocol)
	line("")
	for i, h := range s.Hooks {
		line("%d. %s", i+1, h.title())
		h.write(line)
	}
	if len(s.Answer.Hooks) > 0 {
		line("%d. The answer came from %s (%s).", len(s.Hooks)+1, s.Answer.source(), s.Answer.kindText())
		for _, h := range s.Answer.Hooks {
			if h.worthTelling() {
				line("   %s", h.title())
				h.write(func(format string, args ...any) { line("   "+format, args...) })
			}
		}
		if s.Answer.Verdict == Forwarded && s.Answer.Out != "" {
			line("   It left by %s.", s.Answer.Out)
		}
	}
	if len(s.Tracking) > 0 {
		line("connection tracking: %s", tracked(s.Tracking))
	}
	line("")
	for _, h := range s.Hints {
		line("note: %s", h)
	}
	if len(s.Hints) > 0 {
		line("")
	}
	line("=> %s", s.Conclusion)
	switch {
	case s.Differs != "":
		line("!= %s", s.Differs)
	case s.Expected != nil:
		line("   This is what vmapd decides.")
	}
	_, err := io.WriteString(w, out.String())
	return err
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
