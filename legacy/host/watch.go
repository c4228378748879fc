package host

import (
	"sync"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/model"
)

// watchable is what a backend has for those who watch its iptables rules.
type watchable struct {
	ours     func(chain string) bool
	programs []*programs

	applying sync.Mutex // held by Apply
	left     [len(model.Families)]*leftRules
}

// leftRules is what an Apply left of a family's rules. After one that failed there is none.
type leftRules struct {
	count map[string]int // by table: our rules, and the jumps of others' chains to them
	clean bool           // the Apply compared all rules with the node's, and nothing was different
}

// TellWriting calls began with the process ID of each program that is about to write rules of
// iptables-nft, and what it returns when the process has ended. It returns false if all rules are
// in the tables of iptables-legacy. It must be called before the first Apply.
func (w *watchable) TellWriting(began func(process int) (ended func())) bool {
	some := false
	for _, p := range w.programs {
		if p.variant() == variantNFT {
			p.writing, some = began, true
		}
	}
	return some
}

// countJumps adds the jumps of built-in chains to the number of rules of each table.
func countJumps(rules map[string]int, jumps []iptables.Jump) map[string]int {
	for _, j := range jumps {
		rules[j.Table]++
	}
	return rules
}
