package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// watcher notices what other programs do to vmapd's rules.
type watcher interface {
	ForeignChanges() kernel.ForeignChanges
	Run(ctx context.Context) error // until ctx ends
}

// watch returns tasks that let the loop repair at once what others do to vmapd's rules. The kernel
// permits that for rules of iptables, and for tables of nftables before Linux 6.9 or that nft made. If
// watching fails, the comparison at each resync remains.
func watch(p *dataplane, loop *reconcile.Loop) (tasks []task) {
	changed := make(chan struct{}, 1)
	var err error
	p.watched, err = openWatches(p, changed, loop.Log)
	if err != nil {
		loop.Log.LogAttrs(context.Background(), slog.LevelError, "cannot watch our rules; comparing them at each resync", slog.Any("err", err))
	}
	loop.ForeignChange = changed
	for _, w := range p.watched {
		tasks = append(tasks, quiet(func(ctx context.Context) {
			if err := w.Run(ctx); err != nil {
				loop.Log.LogAttrs(ctx, slog.LevelError, "no longer watching our rules; comparing them at each resync", slog.Any("err", err))
			}
		}))
	}
	return tasks
}

// openWatches returns what tells changed of changes; nothing if the backend has no rules.
func openWatches(p *dataplane, changed chan<- struct{}, log *slog.Logger) ([]watcher, error) {
	switch {
	case p.nft != nil:
		w, err := p.nft.Watch(changed)
		if err != nil {
			return nil, err
		}
		p.Backend = w
		return []watcher{w}, nil
	case p.iptables != nil:
		return watchRules(p.iptables, iptables.IsOurs, changed, log)
	case p.ipvs != nil:
		return watchRules(p.ipvs, iptables.IsIPVS, changed, log)
	}
	return nil, nil
}

// iptablesRules are those of a backend, in the tables of one variant of iptables for each family.
type iptablesRules interface {
	TellWriting(began func(process int) (ended func())) bool
	WatchLegacy(log *slog.Logger, changed chan<- struct{}) (*host.LegacyWatch, error)
}

func watchRules(rules iptablesRules, ours func(chain string) bool, changed chan<- struct{}, log *slog.Logger) (watchers []watcher, err error) {
	var nft *kernel.RuleWatch
	if rules.TellWriting(func(process int) func() { return ignoreWhile(nft, process, log) }) {
		if nft, err = kernel.WatchRules(kernel.RuleWatchOptions{Log: log, Prefix: iptables.Prefix, Ours: ours, Changed: changed}); err == nil {
			watchers = append(watchers, nft)
		}
	}
	legacy, legacyErr := rules.WatchLegacy(log, changed)
	if legacy != nil {
		watchers = append(watchers, legacyWatch{legacy})
	}
	return watchers, errors.Join(err, legacyErr)
}

// ignoreWhile takes what a program changes for our own until it has ended.
func ignoreWhile(w *kernel.RuleWatch, process int, log *slog.Logger) (ended func()) {
	const nobody = 0
	set := func(port int) {
		if w == nil {
			return
		}
		if err := w.Ignore(uint32(port)); err != nil {
			log.LogAttrs(context.Background(), slog.LevelWarn, "our own changes may be taken for those of others", slog.Any("err", err))
		}
	}
	set(process)
	return func() { set(nobody) }
}

// legacyWatch is a watcher of tables whose changes nobody counts but the watch itself.
type legacyWatch struct{ *host.LegacyWatch }

// ForeignChanges implements watcher.
func (w legacyWatch) ForeignChanges() kernel.ForeignChanges {
	return kernel.ForeignChanges{Changes: w.Changes()}
}

// Run implements watcher.
func (w legacyWatch) Run(ctx context.Context) error {
	w.LegacyWatch.Run(ctx)
	return nil
}
