package daemon

import (
	"context"
	"log/slog"

	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// watch notices what other programs do to vmapd's rules. The kernel permits that for rules of iptables, and for tables
// of nftables before Linux 6.9. The zero value notices nothing.
type watch struct {
	foreign <-chan struct{}              // receives then
	changes func() kernel.ForeignChanges // nil with userspace
	tasks   []task
}

// watchTables returns the backend that notices changes of its tables, where they are possible. Without a watch, the
// comparison at each resync remains.
func watchTables(b *kernel.Backend, log *slog.Logger) (reconcile.Backend, watch) {
	none := watch{changes: func() (none kernel.ForeignChanges) { return none }}
	if b.Owned() {
		return b, none
	}
	changed := make(chan struct{}, 1)
	w, err := b.Watch(changed)
	if err != nil {
		log.Error("cannot watch our rules; comparing them at each resync", slog.Any("err", err))
		return b, none
	}
	return w, watch{changed, w.ForeignChanges, []task{quiet(func(ctx context.Context) {
		if err := w.Run(ctx); err != nil {
			log.Error("no longer watching our rules; comparing them at each resync", slog.Any("err", err))
		}
	})}}
}

func watchRules(start func(changed chan<- struct{}) *host.Watch) watch {
	changed := make(chan struct{}, 1)
	w := start(changed)
	changes := func() kernel.ForeignChanges { return kernel.ForeignChanges{Changes: w.Changes()} }
	return watch{changed, changes, []task{quiet(w.Run)}}
}
