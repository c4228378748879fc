package daemon

import (
	"context"
	"log/slog"

	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/nft/kernel"
)

// watch returns tasks that notice what other programs do to vmapd's rules, and a channel that they send to then. The
// kernel permits that for rules of iptables, and for tables of nftables before Linux 6.9.
func watch(p *dataplane, log *slog.Logger) (<-chan struct{}, []task) {
	changed := make(chan struct{}, 1)
	switch {
	case p.nft != nil && p.nft.Owned():
		return nil, nil
	case p.nft != nil:
		return changed, watchTables(p, changed, log)
	case p.iptables != nil:
		return changed, watchRules(p, p.iptables.Watch(changed))
	case p.ipvs != nil:
		return changed, watchRules(p, p.ipvs.Watch(changed))
	}
	return nil, nil
}

// watchTables watches tables of nftables. Without it, the comparison at each resync remains.
func watchTables(p *dataplane, changed chan<- struct{}, log *slog.Logger) []task {
	w, err := p.nft.Watch(changed)
	if err != nil {
		log.LogAttrs(context.Background(), slog.LevelError, "cannot watch our rules; comparing them at each resync",
			slog.Any("err", err))
		return nil
	}
	p.Backend, p.foreign = w, w.ForeignChanges
	return []task{quiet(func(ctx context.Context) {
		if err := w.Run(ctx); err != nil {
			log.LogAttrs(ctx, slog.LevelError, "no longer watching our rules; comparing them at each resync",
				slog.Any("err", err))
		}
	})}
}

func watchRules(p *dataplane, w *host.Watch) []task {
	p.foreign = func() kernel.ForeignChanges { return kernel.ForeignChanges{Changes: w.Changes()} }
	return []task{quiet(w.Run)}
}
