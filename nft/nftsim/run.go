package nftsim

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
)

// maxDepth is NFT_JUMP_STACK_SIZE: the kernel's limit of nested jumps.
const maxDepth = 16

// run is one packet's path.
type run struct {
	*Simulator
	hook       nft.Hook
	remembered []string // since the packet's destination was decided
	counted    []string
	trace      []string
	seen       map[string]bool
}

// Run runs the first packet of a connection through the ruleset.
func (s *Simulator) Run(c model.Connection) (Outcome, error) {
	r := &run{Simulator: s, seen: map[string]bool{}}
	o, err := r.packet(c)
	o.Trace = r.trace
	if err != nil {
		err = fmt.Errorf("%+v: %w", c, err)
	}
	return Outcome{o, r.counted}, err
}

func (r *run) packet(c model.Connection) (o modeltest.Outcome, err error) {
	if f := model.FamilyOf(c.Dest.Addr()); f != r.family || model.FamilyOf(c.Source) != f {
		return o, fmt.Errorf("the ruleset is for %v alone", r.family)
	}
	first := nft.Prerouting
	if c.Node {
		first = nft.Output
	}
	branches, left, err := r.passHook(first, false, state{c, c.Dest})
	if err != nil {
		return o, err
	}
	if left > 0 {
		branches = append(branches, branch{left, translated, c.Dest})
	}
	to := map[netip.AddrPort]modeltest.Arrival{}
	endings := map[ending]bool{}
	for _, b := range branches {
		if b.ending == translated {
			r.remembered = nil
			how, masqueraded, err := r.leave(c, first, b.dest)
			if err != nil {
				return o, err
			}
			b.ending = how
			if how == translated {
				slices.Sort(r.remembered)
				to[b.dest] = modeltest.Arrival{Share: to[b.dest].Share + b.share, Masquerade: masqueraded, Remembered: r.remembered}
			}
		}
		endings[b.ending] = true
	}
	if len(endings) != 1 {
		return o, fmt.Errorf("chance decides between verdicts: %v", branches)
	}
	switch {
	case endings[dropped]:
		o.Verdict = model.Dropped
	case endings[rejected], endings[resetted]:
		o.Verdict, o.TCPReset = model.Rejected, endings[resetted]
	default:
		o.Verdict, o.To = model.Forwarded, to
	}
	return o, nil
}

// leave runs a packet with its final destination through what is behind DNAT in the first hook, and through the hooks
// after routing.
func (r *run) leave(c model.Connection, first nft.Hook, dest netip.AddrPort) (how ending, masquerade bool, err error) {
	at := state{c, c.Dest}
	at.Dest = dest
	last, hooks := nft.Postrouting, []nft.Hook{first}
	switch {
	case c.Node:
	case r.local[dest.Addr()]:
		last = nft.Input
	default:
		hooks = append(hooks, nft.Forward)
	}
	for _, h := range hooks {
		branches, _, err := r.passHook(h, true, at)
		if err != nil {
			return 0, false, err
		}
		if len(branches) > 0 {
			return branches[0].ending, false, nil
		}
	}
	branches, left, err := r.passHook(last, false, at)
	if err != nil {
		return 0, false, err
	}
	if left > 0 {
		branches = append(branches, branch{left, translated, dest})
	}
	for _, b := range branches[1:] {
		if b.ending != branches[0].ending {
			return 0, false, fmt.Errorf("chance decides what postrouting does: %v", branches)
		}
	}
	if branches[0].ending == masqueraded {
		return translated, true, nil
	}
	return branches[0].ending, false, nil
}

// passHook runs all base chains of type nat, or of type filter, of a hook. It returns the branches that have ended, and
// the share of packets that goes on. After a chain has translated, the other nat chains do not
// run (nf_nat_inet_fn). Our filter chains are behind those of type nat.
func (r *run) passHook(h nft.Hook, filter bool, s state) (branches []branch, left float64, err error) {
	r.hook = h
	left = 1
	for _, c := range r.base[h] {
		if c.Filter != filter {
			continue
		}
		var more []branch
		if more, left, err = r.chain(c, s, left, 0); err != nil {
			return nil, 0, err
		}
		branches = append(branches, more...)
	}
	return branches, left, nil
}

// chain runs a share of packets through a chain. It returns the branches that have ended, and
// the share that reaches the end of the chain or a return.
func (r *run) chain(c *nft.Chain, s state, share float64, depth int) (branches []branch, out float64, err error) {
	if depth > maxDepth {
		return nil, 0, fmt.Errorf("chain %s: more than %d jumps deep", c.Name, maxDepth)
	}
	for _, rule := range c.Rules {
		if share == 0 {
			break
		}
		step, err := r.rule(c, rule, s, share, depth)
		if err != nil {
			return nil, 0, fmt.Errorf("chain %s: rule %q: %w", c.Name, rule.Text(r.family), err)
		}
		branches = append(branches, step.branches...)
		out += step.returned
		share = step.next
	}
	return branches, out + share, nil
}

// step is the result of a rule for a share of packets.
type step struct {
	branches []branch // ended
	next     float64  // share that goes on with the next rule
	returned float64  // share that leaves the chain
}

func (r *run) rule(c *nft.Chain, rule nft.Rule, s state, share float64, depth int) (step, error) {
	var done step
	here := share // the share that matched all statements so far
	note := func(what string) {
		line := c.Name + ": " + rule.Text(r.family) + what
		if !r.seen[line] {
			r.seen[line] = true
			r.trace = append(r.trace, line)
		}
	}
	for _, stmt := range rule {
		match := true
		switch stmt := stmt.(type) {
		case nft.MatchProtocol:
			match = s.Protocol == stmt.Protocol
		case nft.Match:
			match = map[nft.Match]bool{ // the packet is NEW, and the only one
				nft.MatchDNAT: s.Dest != s.orig, nft.MatchUntranslated: s.Dest == s.orig, // nf_nat_setup_info
				nft.MatchFirst: true, nft.MatchOriginal: true, nft.MatchFromNode: s.Node || r.local[s.Source],
				nft.MatchToNode: r.local[s.Dest.Addr()], nft.MatchNotToNode: !r.local[s.Dest.Addr()],
			}[stmt]
		case nft.MatchSource:
			match = stmt.Prefix.Contains(s.Source) != stmt.Not
		case nft.MatchInterface:
			has := s.Interface == stmt.Name || stmt.Wildcard && strings.HasPrefix(s.Interface, stmt.Name)
			match = (has && !s.Node) != stmt.Not
		case nft.MatchRepeated:
			match = false
		case nft.SetTimeout: // an answer comes in time
		case nft.ReadRule: // of a chain that nothing needs any more, or not ours
			return step{}, fmt.Errorf("the rule is not one that we make")
		case nft.AddFlow, nft.Forget, nft.Discard:
			note("")
		case nft.Remember:
			note("")
			r.remembered = append(r.remembered, stmt.Map)
		case nft.InSet:
			hits, missed, err := r.lookup(stmt.Key, stmt.Set, s, here)
			if err != nil {
				return step{}, err
			}
			if len(hits) > 0 && missed > 0 {
				return step{}, fmt.Errorf("chance decides whether it is in set %s", stmt.Set)
			}
			if r.sets[stmt.Set].Counter && len(hits) > 0 {
				note("")
				r.counted = append(r.counted, stmt.Set+" "+hits[0].Comment)
			}
			match = len(hits) > 0 != stmt.Not
		case nft.VerdictMap:
			hits, missed, err := r.lookup(stmt.Key, stmt.Map, s, here)
			if err != nil {
				return step{}, err
			}
			for _, h := range hits {
				note(" -> " + h.Verdict.String())
				if err := r.verdict(&done, h.Verdict, s, h.share, depth); err != nil {
					return step{}, err
				}
			}
			here = missed
		case nft.DNAT:
			hits, missed, err := r.lookup(stmt.Key, stmt.Map, s, here)
			if err != nil {
				return step{}, err
			}
			if r.hook != nft.Prerouting && r.hook != nft.Output {
				return step{}, fmt.Errorf("the destination can't be replaced in %v", r.hook)
			}
			if len(hits) > 0 {
				note("")
			}
			for _, h := range hits {
				to, _ := nft.Endpoint(h.Data) // of a map that checkRule has checked
				done.branches = append(done.branches, branch{h.share, translated, to})
			}
			here = missed
		case nft.Masquerade:
			if r.hook != nft.Postrouting {
				return step{}, fmt.Errorf("the source can't be replaced in %v", r.hook)
			}
			note("")
			done.branches = append(done.branches, branch{share: here, ending: masqueraded})
			here = 0
		case nft.Reject:
			if r.hook == nft.Postrouting || r.hook == nft.Forward {
				return step{}, fmt.Errorf("reject is not allowed in %v", r.hook)
			}
			note("")
			how := rejected
			if stmt.TCPReset {
				if s.Protocol != model.TCP {
					return step{}, fmt.Errorf("a reset for %v", s.Protocol)
				}
				how = resetted
			}
			done.branches = append(done.branches, branch{share: here, ending: how})
			here = 0
		case nft.Verdict:
			note("")
			if err := r.verdict(&done, stmt, s, here, depth); err != nil {
				return step{}, err
			}
			here = 0
		default:
			return step{}, fmt.Errorf("unknown statement %T", stmt)
		}
		if !match || here == 0 {
			break
		}
	}
	done.next += here
	return done, nil
}

func (r *run) verdict(done *step, v nft.Verdict, s state, share float64, depth int) error {
	switch v.Kind {
	case nft.DropPacket:
		done.branches = append(done.branches, branch{share: share, ending: dropped})
		return nil
	case nft.Return:
		done.returned += share
		return nil
	case nft.Jump, nft.Goto:
		c := r.chains[v.Chain]
		if c == nil {
			return fmt.Errorf("%v: no such chain", v)
		}
		branches, out, err := r.chain(c, s, share, depth+1)
		if err != nil {
			return err
		}
		done.branches = append(done.branches, branches...)
		if v.Kind == nft.Jump {
			done.next += out
		} else {
			done.returned += out // a goto does not come back
		}
		return nil
	case nft.NoVerdict:
	}
	return fmt.Errorf("unknown verdict %d", v.Kind)
}

// hit is an element that a share of packets has found.
type hit struct {
	nft.Element
	share float64
}

// lookup looks a packet up in a set, once for each slot that may be chosen. All slots get
// the same share, as they do over many connections or clients.
func (r *run) lookup(key nft.Key, name string, s state, share float64) (hits []hit, missed float64, err error) {
	set := r.sets[name]
	if set == nil {
		return nil, 0, fmt.Errorf("no set %s", name)
	}
	keys := []string{""}
	for _, e := range key {
		var next []string
		for _, k := range keys {
			if r.hashes && len(e.Hashed()) > 0 {
				next = append(next, string(nft.AppendSlot([]byte(k), r.hash(e, s))))
				continue
			}
			if e.Field == nft.RandomSlot || len(e.Hashed()) > 0 {
				for slot := range e.Mod {
					next = append(next, string(nft.AppendSlot([]byte(k), slot)))
				}
				continue
			}
			b, err := s.expr([]byte(k), e)
			if err != nil {
				return nil, 0, err
			}
			next = append(next, string(b))
		}
		keys = next
	}
	misses := 0
	for _, k := range keys {
		if e, ok := set.find(k); ok {
			hits = append(hits, hit{e, share / float64(len(keys))})
		} else {
			misses++
		}
	}
	return slices.Clip(hits), share * float64(misses) / float64(len(keys)), nil
}

// hash returns the slot that a packet's hash draws.
func (r *run) hash(e nft.Expr, s state) uint32 {
	a := model.Maglev
	if e.Field == nft.FlowSlot {
		a = model.MaglevPort
	}
	return uint32(model.TableSlot(a, s.Source, cmp.Or(s.SourcePort, modeltest.ClientPort), int(e.Mod)))
}
