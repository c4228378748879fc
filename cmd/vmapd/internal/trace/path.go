package trace

import (
	"fmt"
	"strings"

	"github.com/vmapd/vmapd/nft/others"
)

// Hook is one stop on a packet's path.
type Hook struct {
	Name  others.Hook `json:"hook"`
	In    string      `json:"in,omitempty"`    // interface
	Out   string      `json:"out,omitempty"`   // interface
	Lines []HookLine  `json:"lines,omitempty"` // rules that decided something or changed the packet, its new addresses

	notable bool // a rule ended the packet's path here or, if it is another program's, changed the packet
	ended   bool
}

// HookLine is a text in JSON.
type HookLine struct {
	Text string
	own  bool // a look-up of vmapd's, which decides nothing against the packet
	ends bool // the packet's path
}

// MarshalText implements [encoding.TextMarshaler].
func (l HookLine) MarshalText() ([]byte, error) { return []byte(l.Text), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (l *HookLine) UnmarshalText(text []byte) error {
	l.Text = string(text)
	return nil
}

func (h *Hook) line(format string, args ...any) {
	h.Lines = append(h.Lines, HookLine{Text: fmt.Sprintf(format, args...)})
}

// path is a packet's path through the kernel.
type path struct {
	first, last others.Packet // as it came, and as it was seen last
	hooks       []Hook
	verdict     Verdict
	mark        uint32
	by          string // the rule or policy that ended it, and its owner
	byVmapd     bool
	rule        *Rule  // the same, for programs
	out         string // the interface, or ""
	outIndex    uint32
	lostAt      string // where it vanished
	dnat        bool   // a rule of nftables was seen to replace the destination
	dnatBy      string // the rule, if it is another program's, and that it is
	known       bool   // connection tracking had an entry of the connection, with an answer
	untracked   bool
	untrackedBy string // the last rule that said so; "": none was seen

	line  func(others.Place, uint64) others.Line // nil: rules are not known
	names map[uint32]string                      // of interfaces
	ours  bool                                   // the base chain is one of a tracer
}

const loopback = 1 // the index of lo in every network namespace

// complete reports whether nothing more follows. What leaves by loopback comes back at once.
func (p *path) complete() bool {
	return p.verdict != "" && p.verdict != Lost && !(p.verdict == Forwarded && p.outIndex == loopback)
}

// follow follows the events of one packet. line returns a rule, and names are those of interfaces.
func follow(events []others.Event, line func(others.Place, uint64) others.Line, names map[uint32]string) path {
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
func (p *path) enter(e others.Event) {
	p.ours, p.outIndex = e.Place.IsOurs(), e.Out
	if hook, _ := e.Place.Stage(); p.ours && (len(p.hooks) == 0 || p.hooks[len(p.hooks)-1].Name != hook) {
		p.hooks = append(p.hooks, Hook{Name: hook})
	}
	if len(p.hooks) == 0 {
		return
	}
	h := &p.hooks[len(p.hooks)-1]
	h.In, h.Out = p.names[e.In], p.names[e.Out]
	if p.first == (others.Packet{}) {
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
func (p *path) step(e others.Event, h *Hook) {
	isPolicy := e.Kind == others.Policy
	if p.ours {
		p.untracked, p.known = p.untracked || e.Untracked(), p.known || e.Known()
		_, last := e.Place.Stage()
		h.ended = h.ended || last && isPolicy
		return
	}
	if !isPolicy && e.Rule == 0 { // the chain has ended
		return
	}
	l := others.Line{Place: e.Place, Handle: e.Rule}
	if !isPolicy && p.line != nil {
		l = p.line(e.Place, e.Rule)
	}
	p.dnat = p.dnat || l.DNAT
	line, verdict, isOurs := ruleText(l), verdictText(e), e.Place.IsVmapds()
	owner := ", which is not vmapd's"
	if isOurs {
		owner = ", which is vmapd's"
	} else if l.DNAT {
		p.dnatBy = line + owner
	}
	if l.Untracks && !p.untracked {
		p.untrackedBy = line + owner
	}
	end := map[others.Code]Verdict{others.Drop: Dropped, others.Queue: Taken, others.Stolen: Taken}[e.Code]
	if end == Dropped && l.Rejects {
		end = Rejected
	}
	if end != "" {
		p.verdict, p.by, p.byVmapd = end, line+owner, isOurs
		p.rule = &Rule{e.Place, l.Handle}
	}
	changes := (l.Marks || l.Untracks) && !isOurs
	h.notable = h.notable || changes || p.verdict != ""
	if isPolicy && verdict == "drop" || !isPolicy && (verdict != "continue" || changes) {
		if verdict != "continue" && !strings.HasSuffix(l.Text, verdict) {
			line += " => " + verdict
		}
		h.Lines = append(h.Lines, HookLine{line, isOurs && end == "", end != ""})
	}
}

// end notes the verdict of a packet that no rule has ended.
func (p *path) end() {
	if !p.untracked {
		p.untrackedBy = "" // a rule behind connection tracking has no effect
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
	case last.ended:
		p.verdict, p.lostAt = Lost, fmt.Sprintf("after %s", last.Name)
	default:
		p.verdict, p.lostAt = Lost, fmt.Sprintf("in %s", last.Name)
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
