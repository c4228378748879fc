package iptsim

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// Outcome is a modeltest.Outcome, with its cost.
type Outcome struct {
	modeltest.Outcome

	// RulesMet is the number of rules that a packet meets in the worst case, RulesMetMean the
	// average.
	RulesMet     int
	RulesMetMean float64
}

// outcome joins the results of all shares.
func outcome(all []state) (Outcome, error) {
	var o Outcome
	to := map[netip.AddrPort]modeltest.Arrival{}
	total := 0.0
	for i, s := range all {
		total += s.share
		o.RulesMet = max(o.RulesMet, s.met)
		o.RulesMetMean += s.share * float64(s.met)
		if s.end != all[0].end || s.reset != all[0].reset {
			return o, fmt.Errorf("chance decides between verdicts: %+v and %+v", all[0], all[i])
		}
		if s.end != accepted {
			continue
		}
		slices.Sort(s.recorded)
		now := modeltest.Arrival{Share: s.share, Masquerade: s.masq, Mark: s.Mark, Remembered: s.recorded}
		if before, ok := to[s.Dest]; ok {
			if before.Masquerade != now.Masquerade || before.Mark != now.Mark ||
				!slices.Equal(before.Remembered, now.Remembered) {
				return o, fmt.Errorf("chance decides how a packet arrives at %v: %+v or %+v", s.Dest, before, now)
			}
			now.Share += before.Share
		}
		to[s.Dest] = now
	}
	if total < 1-1e-6 || total > 1+1e-6 {
		return o, fmt.Errorf("the shares of the packets sum up to %v", total)
	}
	switch all[0].end {
	case dropped:
		o.Verdict = model.Dropped
	case rejected:
		o.Verdict, o.TCPReset = model.Rejected, all[0].reset
	case accepted, going:
		o.Verdict, o.To = model.Forwarded, to
	}
	return o, nil
}
