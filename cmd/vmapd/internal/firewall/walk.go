package firewall

import (
	"cmp"
	"slices"
	"strings"
)

// Outcome is what may happen to a packet.
type Outcome struct {
	Accepted bool // it may be accepted
	// Drops are the places that may drop it.
	Drops []Possible
	// Untracks are the rules that keep it from being tracked, or may, if they are before connection tracking.
	Untracks []Possible
}

// Possible is a place that drops a packet or keeps it from being tracked, or may.
type Possible struct {
	Place
	// Aimed: the rule, or one that leads to it, has a condition on the destination's port that holds.
	Aimed bool
	// For certain: no condition on the way is about an unknown part of the packet.
	Certain bool
}

// Dropped reports whether the packet is dropped whatever its unknown parts are.
func (o Outcome) Dropped() bool { return !o.Accepted && len(o.Drops) > 0 }

// Walk takes a packet through the base chains of a hook, in the order of their priorities, those from
// least to most. Chains for which skip returns true are left out.
func Walk(rulesets []Ruleset, hook Hook, least, most int, p *Packet, skip func(*Ruleset, *Chain) bool) Outcome {
	type base struct {
		in    *Ruleset
		chain *Chain
	}
	var list []base
	for i := range rulesets {
		r := &rulesets[i]
		if r.Family == "ip" && !p.v4() || r.Family == "ip6" && p.v4() {
			continue
		}
		for _, c := range r.Chains {
			onDevice := c.Device == "" || p.In == "" || c.Device == p.In
			if c.Hook == hook && c.Priority >= least && c.Priority <= most && onDevice && (skip == nil || !skip(r, c)) {
				list = append(list, base{r, c})
			}
		}
	}
	slices.SortFunc(list, func(a, b base) int {
		return cmp.Or(cmp.Compare(a.chain.Priority, b.chain.Priority), cmp.Compare(a.in.Table, b.in.Table), cmp.Compare(a.chain.Name, b.chain.Name))
	})
	out := Outcome{Accepted: true}
	for _, b := range list {
		w := &walker{in: b.in, packet: p}
		got := w.chain(b.chain, way{certain: true}, 0)
		out.Untracks = append(out.Untracks, w.untracks...)
		if got.returns {
			if b.chain.Drops {
				got.drops = append(got.drops, Possible{Place: w.place(b.chain, 0), Certain: got.certain})
			} else {
				got.accepts = true
			}
		}
		out.Drops = append(out.Drops, got.drops...)
		if !got.accepts {
			out.Accepted = false
			break
		}
	}
	return out
}

// walker takes a packet through the chains of one ruleset.
type walker struct {
	in     *Ruleset
	packet *Packet
	steps  int // rules so far

	untracks []Possible
}

// way is how a packet came to a rule.
type way struct{ certain, aimed bool }

// outcomes are what may happen in a chain.
type outcomes struct {
	accepts, returns bool
	certain          bool // to return is certain
	drops            []Possible
}

// mostSteps bounds the rules that a packet meets in a base chain: chains may lead to others many times.
const mostSteps = 100_000

// deepest bounds jumps, as in the kernel (NFT_JUMP_STACK_SIZE).
const deepest = 16

func (w *walker) place(c *Chain, rule int) Place {
	return Place{By: w.in.By, Family: w.in.Family, Table: w.in.Table, Chain: c.Name, Rule: rule}
}

// chain takes the packet through the rules of a chain.
func (w *walker) chain(c *Chain, from way, depth int) (out outcomes) {
	out.certain = from.certain
	if c == nil || depth > deepest || c.Unread > 0 || w.steps > mostSteps {
		return outcomes{accepts: true, returns: true} // as far as is known
	}
	for i := range c.Rules {
		r := &c.Rules[i]
		w.steps++
		match, aimed := r.matches(w.packet)
		aimed = aimed || from.aimed
		if match == No {
			continue
		}
		here := way{out.certain && match == Yes, aimed}
		if r.Untracks {
			w.untracks = append(w.untracks, Possible{w.place(c, r.Number), aimed, here.certain})
		}
		may, always := false, false // the rule ends the chain in some cases, in all
		switch r.Verdict {
		case Accept:
			out.accepts, may, always = true, true, true
		case Drop:
			out.drops = append(out.drops, Possible{w.place(c, r.Number), aimed, here.certain})
			may, always = true, true
		case Return:
			out.returns, may, always = true, true, true
		case Jump, Goto:
			got := w.chain(w.in.Chains[r.Target], here, depth+1)
			out.accepts = out.accepts || got.accepts
			out.drops = append(out.drops, got.drops...)
			may, always = got.accepts || len(got.drops) > 0, !got.returns
			if r.Verdict == Goto {
				out.returns = out.returns || got.returns
				may, always = true, true
			}
		case Unsure:
			out.accepts, may = true, true
		case Continue:
		}
		if always && match == Yes {
			return out
		}
		out.certain = out.certain && !may
	}
	out.returns = true
	return out
}

// matches tells whether a packet matches, and whether a condition on the destination's port holds.
func (r *Rule) matches(p *Packet) (match Truth, aimed bool) {
	match = Yes
	for _, c := range r.Conds {
		truth := c.holds(p)
		match = min(match, truth)
		aimed = aimed || truth == Yes && c.aboutPort()
	}
	return match, aimed
}

// SetsMarks reports whether a rule of others sets the mark of packets.
func SetsMarks(rulesets []Ruleset, ours func(chain string) bool) bool {
	for _, r := range rulesets {
		for name, c := range r.Chains {
			if !ours(name) && slices.ContainsFunc(c.Rules, func(r Rule) bool { return r.Marks }) {
				return true
			}
		}
	}
	return false
}

// Untracks reports whether a rule of other programs keeps packets from being tracked.
func Untracks(rulesets []Ruleset) bool {
	for _, r := range rulesets {
		for _, c := range r.Chains {
			if slices.ContainsFunc(c.Rules, func(r Rule) bool { return r.Untracks }) {
				return true
			}
		}
	}
	return false
}

// Engine returns the name of a network policy engine or firewall whose chain has this name, or "".
// Such a chain drops packets as somebody has told it.
func Engine(table, chain string) string {
	for prefix, name := range map[string]string{
		"cali-": "Calico", "CILIUM_": "Cilium", "OLD_CILIUM_": "Cilium", "KUBE-ROUTER-": "kube-router", "KUBE-POD-FW-": "kube-router",
		"KUBE-NWPLCY-": "kube-router", "WEAVE-NPC": "Weave Net", "ANTREA-": "Antrea", "f2b-": "fail2ban",
	} {
		if strings.HasPrefix(chain, prefix) {
			return name
		}
	}
	for prefix, name := range map[string]string{"calico": "Calico", "kube-network-policies": "kube-network-policies", "cilium": "Cilium"} {
		if strings.HasPrefix(table, prefix) {
			return name
		}
	}
	return ""
}
