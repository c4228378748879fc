package nftsim

import (
	"net/netip"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
)

// across says when a batch is committed, if that is while a packet is on its way. Elements change for all
// packets at once (nft_genmask_cur). The rules of a base chain, and of those that it leads to, stay for a
// packet that has entered it (nft_do_chain reads the generation once); a chain that the batch makes has no
// rules for it. So a packet may meet the rules of before and find the elements of after.
type across struct {
	before, next *Simulator // next is nil if there is no batch
	rules        *Simulator // of the base chain that the packet is in
	commit       int        // after so many steps
	steps        int        // of the packet so far, on one branch of random choices
	met          bool       // the commit, on some branch
}

// RunAcross is Run for a packet on whose way a batch is committed: after a number of steps, each of which
// enters a base chain or looks up an element. next has the table after the batch. The outcome has the worst
// verdict, and in To where other packets go, if chance decides. It reports false if the packet had left before.
func (s *Simulator) RunAcross(c model.Connection, next *Simulator, steps int) (Outcome, bool, error) {
	r := &run{Simulator: s, across: across{before: s, next: next, commit: steps}, seen: map[string]bool{}}
	o, err := r.outcome(c)
	return o, r.met, err
}

// acrossOutcome returns the worst verdict, and where the rest of the packets go: chance may decide between
// a slot that is there and one that is gone.
func acrossOutcome(endings map[ending]bool, to map[netip.AddrPort]modeltest.Arrival) modeltest.Outcome {
	o := modeltest.Outcome{Verdict: model.Forwarded, To: to}
	switch {
	case endings[rejected], endings[resetted]:
		o.Verdict, o.TCPReset = model.Rejected, endings[resetted]
	case endings[dropped]:
		o.Verdict = model.Dropped
	}
	return o
}

// look is the step that looks up an element.
func (r *run) look() {
	r.steps++
	if r.next == nil {
		return
	}
	if r.Simulator = r.before; r.steps > r.commit {
		r.Simulator, r.met = r.next, true
	}
}

// enter is the step that enters a base chain. It reports whether the chain has rules.
func (r *run) enter(c *nft.Chain) (*nft.Chain, bool) {
	r.look()
	r.rules = r.Simulator
	c, ok := r.rules.chains[c.Name]
	return c, ok
}

// hooked returns the base chains of a hook. Those of a batch are there before it is committed, without
// rules (nf_tables_addchain).
func (r *run) hooked(h nft.Hook) []*nft.Chain {
	if r.next != nil {
		return r.next.base[h]
	}
	return r.base[h]
}

// regular returns the chain to which a verdict leads; nil if there is none.
func (r *run) regular(name string) *nft.Chain {
	c := r.rules.chains[name]
	if c == nil && r.next != nil && r.next.chains[name] != nil {
		c = &nft.Chain{Name: name}
	}
	return c
}
