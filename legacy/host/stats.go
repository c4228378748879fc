package host

import (
	"maps"
	"sync"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/model"
)

// Stats is what a backend has done for one IP family. All but Rules and RulesWritten only
// ever grow.
type Stats struct {
	Batches    uint64 // rounds that wrote something
	Operations uint64 // chains and rules written and chains deleted, or operations on IPVS and what goes with it
	Bytes      uint64 // given to iptables-restore; 0 for IPVS

	RestoreFailures        uint64 // runs of iptables-restore that failed
	PartialRestoreFailures uint64 // of these, how many had to write only what changed

	// Of the iptables backend alone. By table: our rules, and those that the last round
	// wrote, which are none if nothing had to change.
	Rules, RulesWritten map[string]int
	// Repairs counts the comparisons with the node that found rules of ours changed by
	// others.
	Repairs uint64
	// InvalidDropped counts packets dropped as connection tracking calls them invalid, as
	// of the last comparison with the node.
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

// Stats returns what was done for each family. Any goroutine may call it.
func (c *counters) Stats() [len(model.Families)]Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.stats
	for i := range all {
		all[i].Rules, all[i].RulesWritten = maps.Clone(all[i].Rules), maps.Clone(all[i].RulesWritten)
	}
	return all
}

// applied counts a batch that is in force. If full is set, it was made of what the node lists,
// and else of what was there before.
func (s *Stats) applied(b *iptables.Batch, bytes int64, full bool) {
	if full {
		s.Rules = map[string]int{}
	}
	s.RulesWritten = map[string]int{}
	for table, r := range b.Rules() {
		s.Rules[table] += r.Growth
		s.RulesWritten[table] = r.Written
	}
	if b.Empty() {
		return
	}
	size := b.Size()
	s.Batches++
	s.Operations += uint64(size.Chains) + uint64(size.Rules) + uint64(size.Deleted)
	s.Bytes += uint64(bytes)
}

// failed counts a run of iptables-restore that failed.
func (s *Stats) failed(partial bool) {
	s.RestoreFailures++
	if partial {
		s.PartialRestoreFailures++
	}
}

// dropped takes in the counter of the rule for invalid packets: how many it has dropped since
// it was written, so that it begins anew when others or we write it again.
func (s *Stats) dropped(before, now uint64) {
	if now < before {
		before = 0
	}
	s.InvalidDropped += now - before
}
