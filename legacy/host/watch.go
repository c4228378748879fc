package host

import (
	"context"
	"log/slog"
	"maps"
	"slices"
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
	chains := map[string][]string{} // by table
	for _, j := range w.jumps {
		if !slices.Contains(chains[j.Table], j.Chain) {
			chains[j.Table] = append(chains[j.Table], j.Chain)
		}
	}
	table := slices.Sorted(maps.Keys(chains))[w.turn%len(chains)]
	chain := chains[table][w.turn/len(chains)%len(chains[table])]
	w.turn++
	for _, p := range w.programs {
		rules, err := p.tables.List(table, chain)
		w.logFailure(err)
		leads := func(rule string) bool { return iptables.LeadsTo(rule, w.ours) }
		if err == nil && !slices.ContainsFunc(rules, leads) && w.inForce.Load() == s {
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
