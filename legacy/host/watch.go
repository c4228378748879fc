package host

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
)

const (
	canaryInterval = time.Second
	// canaryShare bounds the processor time of the programs that look for canaries: the pause after a look is so
	// many times as long, up to slowestCanary, as kube-proxy's. iptables-legacy copies a whole table to list one chain.
	canaryShare     = 50
	slowestCanary   = 30 * time.Second
	compareInterval = time.Hour // as kube-proxy's full sync
	// comparisons is how often everything is compared, at most, while Apply changes the rules meanwhile.
	comparisons = 3
)

// watchable is what a backend has for the Watch of its iptables rules.
type watchable struct {
	programs []*programs
	ours     func(chain string) bool
	// inForce is nil during Apply, and after one that failed: the next Apply compares everything.
	inForce atomic.Pointer[model.Snapshot]
}

// settled waits until an Apply has worked and none is at work. It returns nil if ctx ends before.
func (w *watchable) settled(ctx context.Context) *model.Snapshot {
	const pause = 50 * time.Millisecond
	for {
		if s := w.inForce.Load(); s != nil {
			return s
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// Watch notices that another program has changed a backend's rules. Our jumps are its canaries: who flushes a table
// takes all of them there, and each second it looks for one of each family. Each hour, it compares everything. It runs
// beside Apply, in the network namespace of its caller.
type Watch struct {
	*watchable
	jumps   []iptables.Jump
	compare func(context.Context, model.Family, *model.Snapshot) ([]string, error)
	log     *slog.Logger
	changed chan<- struct{}
	changes atomic.Uint64
	turn    int
	failed  bool // the last canary or comparison, which the log has
}

// Watch returns a watch, which sends to changed without waiting for a receiver.
func (b *IPTables) Watch(changed chan<- struct{}) *Watch {
	return &Watch{watchable: &b.watchable, jumps: iptables.Jumps(), compare: b.Compare, log: b.log, changed: changed}
}

// Watch returns a watch, which sends to changed without waiting for a receiver.
func (b *IPVS) Watch(changed chan<- struct{}) *Watch {
	return &Watch{watchable: &b.watchable, jumps: ipvs.Jumps(), compare: b.Compare, log: b.log, changed: changed}
}

// Changes returns the number of changes that were noticed. It may be called at any time.
func (w *Watch) Changes() uint64 { return w.changes.Load() }

// Run watches until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	next := time.NewTimer(canaryInterval)
	defer next.Stop()
	compare := time.NewTicker(compareInterval)
	defer compare.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
			before := childrenTime()
			w.Look()
			next.Reset(min(max(canaryInterval, canaryShare*(childrenTime()-before)), slowestCanary))
		case <-compare.C:
			w.Compare(ctx)
		}
	}
}

// childrenTime returns the processor time of programs that have ended. Those that an Apply runs are among them.
func childrenTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_CHILDREN, &u) // it fails for no such arguments
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Look looks for one canary of each family: another one each time, of each table in turn.
func (w *Watch) Look() {
	s := w.inForce.Load()
	if s == nil {
		return // the next Apply compares everything
	}
	chains, jumps := map[string][]string{}, map[string]int{} // by table; by table and chain
	for _, j := range w.jumps {
		if !slices.Contains(chains[j.Table], j.Chain) {
			chains[j.Table] = append(chains[j.Table], j.Chain)
		}
		jumps[j.Table+j.Chain]++
	}
	table := slices.Sorted(maps.Keys(chains))[w.turn%len(chains)]
	chain := chains[table][w.turn/len(chains)%len(chains[table])]
	w.turn++
	for _, p := range w.programs {
		rules, err := p.tables.List(table, chain)
		w.logFailure(err)
		others := func(rule string) bool { return !iptables.LeadsTo(rule, w.ours) }
		there := len(slices.DeleteFunc(rules, others))
		if err == nil && there < jumps[table+chain] && w.inForce.Load() == s {
			w.notice("family", p.family.String(), "table", table, "chain", chain)
			return
		}
	}
}

// Compare compares everything. A difference is one that all comparisons found, up to the first during which there was
// no Apply of another snapshot. One of the same snapshot only repairs.
func (w *Watch) Compare(ctx context.Context) {
	var differences map[string]bool
	for range comparisons {
		s := w.settled(ctx)
		if s == nil {
			return
		}
		found := map[string]bool{}
		for _, f := range model.Families {
			list, err := w.compare(ctx, f, s)
			if w.logFailure(err); err != nil {
				return
			}
			for _, d := range list {
				if differences == nil || differences[d] {
					found[d] = true
				}
			}
		}
		if differences = found; len(found) == 0 || w.inForce.Load() == s {
			break
		}
	}
	for d := range differences {
		w.notice("differences", len(differences), "one", d)
		break
	}
}

func (w *Watch) notice(attrs ...any) {
	w.changes.Add(1)
	select {
	case w.changed <- struct{}{}:
		w.log.Info("rules changed by another program", attrs...)
	default: // the last change is still to be repaired
	}
}

// logFailure logs an error, unless the last look failed, too.
func (w *Watch) logFailure(err error) {
	if err != nil && !w.failed {
		w.log.Error("cannot watch our rules", slog.Any("err", err))
	}
	w.failed = err != nil
}

// Stats counts the work of a backend for one IP family. All fields but Rules and RulesWritten only ever grow.
type Stats struct {
	Batches    uint64 // rounds that wrote something
	Operations uint64 // chains and rules written and chains deleted, or operations of IPVS plans
	Bytes      uint64 // input of iptables-restore; 0 for IPVS

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

// dropped adds the growth of the counter of the rule for invalid packets. The counter begins anew
// whenever the rule is written again.
func (s *Stats) dropped(before, now uint64) {
	if now < before {
		before = 0
	}
	s.InvalidDropped += now - before
}
