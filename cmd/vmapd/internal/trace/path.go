package trace

import (
	"fmt"
	"strings"

	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/others"
)

// Hook is one stop on a packet's path.
type Hook struct {
	Name  others.Hook `json:"hook"`
	In    string      `json:"in,omitempty"`    // interface
	Out   string      `json:"out,omitempty"`   // interface
	Lines []string    `json:"lines,omitempty"` // rules that decided something or changed the packet, its new addresses

	notable bool // a rule ended the packet's path here or, if it is another program's, changed the packet
	ended   bool
}

// path is a packet's path through the kernel.
type path struct {
	first, last others.Packet // as it came, and as it was seen last
	hooks       []Hook
	verdict     Verdict
	by          string // the rule or policy that ended it, and whose it is
	byVmapd     bool
	out         string // the interface, or ""
	outIndex    uint32
	lostAt      string // where it vanished
	dnat        bool   // a rule of nftables was seen to replace the destination
	untracked   bool
	untrackedBy string // the last rule that said so; "": none was seen
}

// arrived reports whether the packet left this node, or came to a process on it.
func (p *path) arrived() bool { return p.verdict == Forwarded || p.verdict == Delivered }

// complete reports whether nothing more follows. What leaves by loopback comes back at once.
func (p *path) complete() bool {
	const loopback = 1 // the index of lo in every network namespace
	return p.verdict != "" && p.verdict != Lost && !(p.verdict == Forwarded && p.outIndex == loopback)
}

// walker follows the events of one packet.
type walker struct {
	path
	line  func(others.Place, uint64) others.Line // nil: rules are not known
	names map[uint32]string                      // of interfaces
	ours  bool                                   // the base chain is one of a tracer
}

// follow follows the events of one packet. line returns a rule, and names are those of interfaces.
func follow(events []others.Event, line func(others.Place, uint64) others.Line, names map[uint32]string) path {
	w := walker{line: line, names: names}
	for _, e := range events {
		if e.Packet != nil {
			w.enter(e)
		}
		if len(w.hooks) > 0 { // the beginning was seen
			w.step(e, &w.hooks[len(w.hooks)-1])
		}
	}
	w.end()
	return w.path
}

// enter begins a base chain, which shows the packet as it is now. At each hook, the first one is a tracer's.
func (w *walker) enter(e others.Event) {
	w.ours, w.outIndex = e.Place.IsOurs(), e.Out
	if hook, _ := e.Place.Stage(); w.ours && (len(w.hooks) == 0 || w.hooks[len(w.hooks)-1].Name != hook) {
		w.hooks = append(w.hooks, Hook{Name: hook})
	}
	if len(w.hooks) == 0 {
		return
	}
	h := &w.hooks[len(w.hooks)-1]
	h.In, h.Out = w.names[e.In], w.names[e.Out]
	if w.first == (others.Packet{}) {
		w.first, w.last = *e.Packet, *e.Packet
	}
	if to := e.Packet.Dest; to != w.last.Dest {
		h.Lines = append(h.Lines, fmt.Sprintf("The destination is %v now.", to))
	}
	if from := e.Packet.Source; from != w.last.Source {
		h.Lines = append(h.Lines, fmt.Sprintf("The source is %v now.", from))
	}
	w.last = *e.Packet
}

// step notes what a rule or a policy does to the packet.
func (w *walker) step(e others.Event, h *Hook) {
	if w.ours {
		w.untracked = w.untracked || e.Untracked()
		_, last := e.Place.Stage()
		h.ended = h.ended || last && e.Kind == others.Policy
		return
	}
	isPolicy := e.Kind == others.Policy
	if !isPolicy && e.Rule == 0 { // the chain has ended
		return
	}
	l := others.Line{Place: e.Place, Handle: e.Rule}
	if !isPolicy && w.line != nil {
		l = w.line(e.Place, e.Rule)
	}
	w.dnat = w.dnat || l.DNAT
	changes := (l.Marks || l.Untracks) && !isVmapds(e.Place)
	verdict := verdictText(e)
	if isPolicy && verdict == "drop" || !isPolicy && (verdict != "continue" || changes) {
		line := ruleText(l)
		if verdict != "continue" && !strings.HasSuffix(l.Text, verdict) {
			line += " => " + verdict
		}
		h.Lines = append(h.Lines, line)
	}
	if l.Untracks && !w.untracked {
		w.untrackedBy = ruleText(l) + whose(e.Place)
	}
	w.decide(e, l)
	h.notable = h.notable || changes || w.verdict != ""
}

// decide notes a verdict that ends the packet's path.
func (w *walker) decide(e others.Event, l others.Line) {
	switch {
	case e.Code == others.Drop && l.Rejects:
		w.verdict = Rejected
	case e.Code == others.Drop:
		w.verdict = Dropped
	case e.Code == others.Queue, e.Code == others.Stolen:
		w.verdict = Taken
	default:
		return
	}
	w.by, w.byVmapd = ruleText(l)+whose(e.Place), isVmapds(e.Place)
}

// end notes the verdict of a packet that no rule has ended.
func (w *walker) end() {
	if !w.untracked {
		w.untrackedBy = "" // a rule behind connection tracking has no effect
	}
	if w.verdict != "" || len(w.hooks) == 0 {
		return
	}
	last := w.hooks[len(w.hooks)-1]
	w.out = last.Out
	switch {
	case last.ended && last.Name == others.Postrouting:
		w.verdict = Forwarded
	case last.ended && last.Name == others.Input:
		w.verdict = Delivered
	case last.ended:
		w.verdict, w.lostAt = Lost, fmt.Sprintf("after %s", last.Name)
	default:
		w.verdict, w.lostAt = Lost, fmt.Sprintf("in %s", last.Name)
	}
}

func verdictText(e others.Event) string {
	name, ok := map[others.Code]string{
		others.Drop: "drop", others.Accept: "accept", others.Stolen: "stolen", others.Queue: "queue",
		others.Continue: "continue", others.Break: "continue", others.Returned: "return",
		others.Jump: "jump", others.Goto: "goto",
	}[e.Code]
	if !ok {
		name = fmt.Sprintf("verdict %d", e.Code)
	}
	return strings.TrimSpace(name + " " + e.Target)
}

// ruleText names a rule, or the policy of its chain if it has no handle.
func ruleText(l others.Line) string {
	where := fmt.Sprintf("table %s %s, chain %s", l.Place.Family, l.Place.Table, l.Place.Chain)
	switch {
	case l.Handle == 0:
		return where + ", by its policy"
	case l.Position == 0: // it is not there any more
		return fmt.Sprintf("%s, by the rule with handle %d", where, l.Handle)
	}
	text := l.Text
	if l.Comment != "" {
		text = strings.TrimSpace(fmt.Sprintf("%s comment %q", text, l.Comment))
	}
	if text != "" {
		text = " (" + text + ")"
	}
	return fmt.Sprintf("%s, rule %d%s", where, l.Position, text)
}

// whose says whose rule it is.
func whose(p others.Place) string {
	if isVmapds(p) {
		return ", which is vmapd's"
	}
	return ", which is not vmapd's"
}

func isVmapds(p others.Place) bool {
	return (p.Family == "ip" || p.Family == "ip6") && (p.Table == nft.TableName || strings.HasPrefix(p.Chain, "VMAPD-"))
}
