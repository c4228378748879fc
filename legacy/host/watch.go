package host

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
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
	// serversInterval is the time between two looks at virtual servers and addresses, as kube-proxy's.
	serversInterval = 30 * time.Second
)

// Watch notices that another program has changed what a backend wrote. Our jumps are its canaries: who flushes a table
// takes all of them there, and each second it looks for those of one chain. With IPVS, it also looks at all virtual
// servers and addresses. It runs beside Apply, in the network namespace of its caller; the rest is compared at a
// Resync.
type Watch struct {
	programs []*programs
	jumps    []iptables.Jump
	ours     func(chain string) bool
	// difference returns what else differs from the last Apply; nil: nothing else is looked at.
	difference func(model.Family) (string, error)
	// programmed: an Apply worked, and none has failed since. Without that, the next Apply compares everything.
	programmed *atomic.Bool
	log        *slog.Logger
	changed    chan<- struct{}
	changes    atomic.Uint64
	turn       int
	failed     [len(model.Families)]bool // the last look, which the log has
}

// Watch returns a watch, which sends to changed without waiting for a receiver.
func (b *IPTables) Watch(changed chan<- struct{}) *Watch {
	w := &Watch{jumps: iptables.Jumps(), ours: iptables.IsOurs, programmed: &b.programmed, log: b.log, changed: changed}
	for _, f := range b.families {
		w.programs = append(w.programs, f.programs)
	}
	return w
}

// Watch returns a watch, which sends to changed without waiting for a receiver.
func (b *IPVS) Watch(changed chan<- struct{}) *Watch {
	w := &Watch{
		jumps: ipvs.Jumps(), ours: iptables.IsIPVS, difference: b.difference,
		programmed: &b.programmed, log: b.log, changed: changed,
	}
	for _, f := range b.families {
		w.programs = append(w.programs, f.programs)
	}
	return w
}

// Changes returns the number of changes that were noticed. It may be called at any time.
func (w *Watch) Changes() uint64 { return w.changes.Load() }

// Run watches until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	next, servers := time.NewTimer(canaryInterval), time.NewTicker(serversInterval)
	defer next.Stop()
	defer servers.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
			before := time.Now()
			w.Look()
			next.Reset(min(max(canaryInterval, canaryShare*time.Since(before)), slowestCanary))
		case <-servers.C:
			w.LookAtServers()
		}
	}
}

// Look looks for the canaries of one chain of each family: another one each time, of each table in turn.
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
	w.each(func(p *programs) (string, error) {
		rules, err := p.tables.List(table, chain)
		others := func(rule string) bool { return !iptables.LeadsTo(rule, w.ours) }
		if there := len(slices.DeleteFunc(rules, others)); err != nil || there >= jumps[table+chain] {
			return "", err
		}
		return fmt.Sprintf("no jump in chain %s of table %s", chain, table), nil
	})
}

// LookAtServers looks whether virtual servers and addresses are as the last Apply left them.
func (w *Watch) LookAtServers() {
	if w.difference != nil {
		w.each(func(p *programs) (string, error) { return w.difference(p.family) })
	}
}

// each looks at each family for a difference, and reports the first one.
func (w *Watch) each(look func(*programs) (string, error)) {
	if !w.programmed.Load() {
		return
	}
	for _, p := range w.programs {
		found, err := look(p)
		if err != nil && !w.failed[p.family] {
			w.log.Error("cannot watch our rules", slog.String("family", p.family.String()), slog.Any("err", err))
		}
		w.failed[p.family] = err != nil
		if found == "" || !w.programmed.Load() {
			continue
		}
		w.changes.Add(1)
		select {
		case w.changed <- struct{}{}:
			w.log.Info("rules changed by another program",
				slog.String("family", p.family.String()), slog.String("difference", found))
		default: // the last change is still to be repaired
		}
		return
	}
}

// difference returns an operation that would bring back the virtual servers and addresses that the last Apply left;
// "" if there is none. It costs a few requests, however many there are.
func (b *IPVS) difference(family model.Family) (string, error) {
	for _, f := range b.families {
		want := f.applied.Load()
		if f.family != family || want == nil {
			continue
		}
		servers, err := openServers() // Apply may use that of b meanwhile
		if err != nil {
			return "", err
		}
		defer servers.Close()
		have := want.Content()
		have.Device, have.Addrs = false, map[netip.Addr]bool{}
		if err := readDevice(have); err != nil {
			return "", err
		}
		if have.Servers, err = servers.list(family); err != nil {
			return "", err
		}
		if plan := ipvs.DiffContent(have, want); len(plan) > 0 && f.applied.Load() == want {
			return plan[0].Command, nil
		}
	}
	return "", nil
}
