package trace

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/others"
)

// way is a packet's way through the kernel.
type way struct {
	first, last others.Packet // as it came, and as it was seen last
	hooks       []Hook
	verdict     Verdict
	by          *Decider
	out         string // the interface, or empty
	outIndex    uint32
	lostAt      string // where it vanished
	untracked   bool
	untrackedBy *Decider // the last rule that said so; nil if none was seen
}

// walk follows the events of one packet.
func (in *Input) walk(events []others.Event) way {
	var w walker
	w.lines = map[others.Place]map[uint64]others.Line{}
	for _, l := range in.Lines {
		if w.lines[l.Place] == nil {
			w.lines[l.Place] = map[uint64]others.Line{}
		}
		w.lines[l.Place][l.Handle] = l
	}
	w.hookOf = map[others.Place]others.Hook{}
	for _, b := range in.Bases {
		w.hookOf[b.Place] = b.Hook
	}
	w.interfaces = in.Interfaces
	for _, e := range events {
		w.step(e)
	}
	w.end()
	return w.way
}

type walker struct {
	way
	lines      map[others.Place]map[uint64]others.Line
	hookOf     map[others.Place]others.Hook
	interfaces map[uint32]string
	ours       bool // the base chain is one of a tracer
}

func (w *walker) step(e others.Event) {
	if e.Packet != nil {
		w.enter(e)
	}
	if len(w.hooks) == 0 {
		return // the beginning was not seen
	}
	h := &w.hooks[len(w.hooks)-1]
	if w.ours {
		w.untracked = w.untracked || e.Untracked()
		if _, end := e.Place.Stage(); end && e.Kind == others.Policy {
			h.ended = true
		}
		return
	}
	if len(h.Chains) == 0 {
		return
	}
	c := &h.Chains[len(h.Chains)-1]
	switch {
	case e.Kind == others.Policy:
		c.Policy = verdictText(e)
		w.decide(e, c, nil)
	case e.Rule != 0: // without a rule, the chain has ended
		line := w.lines[e.Place][e.Rule]
		c.Rules = append(c.Rules, Rule{
			Chain: e.Place.Chain, Position: line.Position, Handle: e.Rule,
			Text: line.Text, Comment: line.Comment, Verdict: verdictText(e), line: line,
		})
		r := c.Rules[len(c.Rules)-1]
		if line.Untracks && !w.untracked {
			w.untrackedBy = decider(e.Place, &r)
		}
		w.decide(e, c, &r)
	}
}

// enter begins a base chain, which shows the packet as it is now.
func (w *walker) enter(e others.Event) {
	w.ours = e.Place.IsOurs()
	hook, known := w.hookOf[e.Place]
	if w.ours {
		hook, _ = e.Place.Stage()
		known = true
	}
	in, out := w.interfaces[e.In], w.interfaces[e.Out]
	w.outIndex = e.Out
	if n := len(w.hooks); known && (n == 0 || w.hooks[n-1].Name != hook) {
		w.hooks = append(w.hooks, Hook{Name: hook})
	}
	if len(w.hooks) == 0 {
		return
	}
	h := &w.hooks[len(w.hooks)-1]
	h.In, h.Out = in, out
	if w.first == (others.Packet{}) {
		w.first, w.last = *e.Packet, *e.Packet
	}
	nat := &h.NAT
	if n := len(h.Chains); n > 0 {
		nat = &h.Chains[n-1].NAT
	}
	if to := e.Packet.Dest; to != w.last.Dest {
		nat.Destination = &to
	}
	if from := e.Packet.Source; from != w.last.Source {
		nat.Source = &from
	}
	w.last = *e.Packet
	if !w.ours {
		h.Chains = append(h.Chains, Chain{Family: e.Place.Family, Table: e.Place.Table, Chain: e.Place.Chain})
	}
}

// decide notes a verdict that ends the packet's way.
func (w *walker) decide(e others.Event, base *Chain, r *Rule) {
	switch {
	case e.Code == others.Drop && r != nil && r.line.Rejects:
		w.verdict = Rejected
	case e.Code == others.Drop:
		w.verdict = Dropped
	case e.Code == others.Queue, e.Code == others.Stolen:
		w.verdict = Taken
	default:
		return
	}
	w.by = decider(e.Place, r)
	if w.by.Owner == "vmapd" {
		w.by.Reason = reason(base.Rules)
	}
}

func decider(p others.Place, r *Rule) *Decider {
	return &Decider{Family: p.Family, Table: p.Table, Chain: p.Chain, Rule: r, Owner: owner(p)}
}

// end tells the verdict of a packet that no rule has ended.
func (w *walker) end() {
	if !w.untracked {
		w.untrackedBy = nil // a rule behind connection tracking has no effect
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
	names := map[others.Code]string{
		others.Drop: "drop", others.Accept: "accept", others.Stolen: "stolen", others.Queue: "queue",
		others.Continue: "continue", others.Break: "continue", others.Jump: "jump", others.Goto: "goto", others.Returned: "return",
	}
	name := names[e.Code]
	if name == "" {
		name = fmt.Sprintf("verdict %d", e.Code)
	}
	return strings.TrimSpace(name + " " + e.Target)
}

// owner names the program that owns a chain, if it is known.
func owner(p others.Place) string {
	isIP := p.Family == "ip" || p.Family == "ip6"
	switch {
	case isIP && (p.Table == nft.TableName || strings.HasPrefix(p.Chain, "VMAPD-")):
		return "vmapd"
	case isIP && (p.Table == "kube-proxy" || strings.HasPrefix(p.Chain, "KUBE-")):
		return "kube-proxy"
	}
	return ""
}

// reason says why vmapd's own rules refuse or drop a packet.
func reason(rules []Rule) string {
	if len(rules) == 0 {
		return ""
	}
	led := func(set string) bool {
		for _, r := range rules {
			if strings.Contains(r.Text, "@"+set) {
				return true
			}
		}
		return false
	}
	last := rules[len(rules)-1]
	isDrop := last.Verdict == "drop" && !last.line.Rejects
	switch {
	case isDrop && strings.Contains(last.Text, "@source-ranges-"):
		return "the client is not in loadBalancerSourceRanges"
	case isDrop && led(nft.ServiceCIDRs):
		return "the address is in a range of cluster IPs, and no Service has it"
	case isDrop && (led(nft.ServiceIPs) || led(nft.ServiceNodePorts)):
		return "the traffic policy is Local, and this node has no endpoint"
	case led(nft.ServiceIPs) || led(nft.ServiceNodePorts):
		return "the Service has no endpoint"
	case led(nft.ClusterIPs):
		return "the address is a cluster IP, but its Service has no such port"
	}
	return ""
}

// at returns an address as text, or nothing.
func at(a netip.AddrPort) string {
	if !a.IsValid() {
		return "unknown"
	}
	return a.String()
}
