package host

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
)

const (
	canaryInterval = time.Second
	// After each look, Run waits canaryShare × its duration, up to slowestCanary, as kube-proxy's: iptables-legacy copies
	// a whole table to list one chain.
	canaryShare   = 50
	slowestCanary = 30 * time.Second
)

// Watch notices that another program has changed what a backend wrote. Our jumps are its canaries: who flushes a table
// takes all of them there, and each second it looks for those of one chain. It runs beside Apply, in the network
// namespace of its caller; the rest is compared at a Resync.
type Watch struct {
	*backend
	jumps   []iptables.Jump
	ours    func(chain string) bool
	changed chan<- struct{}
	turn    int
	failed  [len(model.Families)]bool // the last look, which the log has
}

// Watch returns a watch, which sends to changed without waiting for a receiver.
func (b *IPTables) Watch(changed chan<- struct{}) *Watch {
	return &Watch{backend: &b.backend, jumps: iptables.Jumps(), ours: iptables.IsOurs, changed: changed}
}

// Watch returns a watch, which sends to changed without waiting for a receiver.
func (b *IPVS) Watch(changed chan<- struct{}) *Watch {
	return &Watch{backend: &b.backend, jumps: ipvs.Jumps(), ours: iptables.IsIPVS, changed: changed}
}

// Run watches until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	next := time.NewTimer(canaryInterval)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
			before := time.Now()
			w.Look()
			next.Reset(min(max(canaryInterval, canaryShare*time.Since(before)), slowestCanary))
		}
	}
}

// Look looks for the canaries of one chain of each family: another one each time, of each table in turn. It reports the
// first family that lacks one.
func (w *Watch) Look() {
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
	if !w.programmed.Load() {
		return // the next Apply compares everything
	}
	for _, p := range w.programs {
		rules, err := p.tables.List(table, chain)
		if err != nil && !w.failed[p.family] {
			w.log.Error("cannot watch our rules", slog.String("family", p.family.String()), slog.Any("err", err))
		}
		w.failed[p.family] = err != nil
		others := func(rule string) bool { return !iptables.LeadsTo(rule, w.ours) }
		there := len(slices.DeleteFunc(rules, others))
		if err != nil || there >= jumps[table+chain] {
			continue
		}
		select {
		case w.changed <- struct{}{}:
			w.log.Info("rules changed by another program", slog.String("family", p.family.String()),
				slog.String("table", table), slog.String("chain", chain))
		default: // the last change is still to be repaired
		}
		return
	}
}
