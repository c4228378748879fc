package host

import (
	"maps"
	"sync"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/model"
)

// Stats counts the work of a backend for one IP family. All fields but Rules and RulesWritten only ever grow.
type Stats struct {
	Operations uint64 // chains and rules written and chains deleted, or operations of IPVS plans

	RestoreFailures        uint64 // runs of iptables-restore that failed
	PartialRestoreFailures uint64 // those of them that were to write only changes

	// For the iptables backend alone: by table, the number of our rules, and of those that the last round wrote.
	Rules, RulesWritten map[string]int
	// Repairs counts the comparisons with the node that found foreign changes of our rules.
	Repairs uint64
	// InvalidDropped counts dropped packets that are INVALID for connection tracking, as of the
	// last comparison with the node.
	InvalidDropped uint64
}

// counters are Stats that one goroutine writes and any number read.
type counters struct {
	mu    sync.Mutex
	stats [len(model.Families)]Stats
}

func (c *counters) update(f model.Family, change func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.stats[f])
}

// Stats returns the counters of each family. Any goroutine may call it.
func (c *counters) Stats() [len(model.Families)]Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.stats
	for i := range all {
		all[i].Rules, all[i].RulesWritten = maps.Clone(all[i].Rules), maps.Clone(all[i].RulesWritten)
	}
	return all
}

// applied counts a batch that is in force. A full one was compared with a listing, others with the ruleset before.
func (s *Stats) applied(b *iptables.Batch, full bool) {
	if full {
		s.Rules = map[string]int{}
	}
	s.RulesWritten = map[string]int{}
	for table, r := range b.Rules() {
		s.Rules[table] += r.Growth
		s.RulesWritten[table] = r.Written
	}
	size := b.Size()
	s.Operations += uint64(size.Chains) + uint64(size.Rules) + uint64(size.Deleted)
}

// read counts a comparison with the node: whether it found foreign changes, and the growth of the counter of the rule
// for invalid packets, which begins anew whenever the rule is written again.
func (s *Stats) read(before, now uint64, foreign bool) {
	if now < before {
		before = 0
	}
	s.InvalidDropped += now - before
	if foreign {
		s.Repairs++
	}
}
