package userspace

import (
	"errors"
	"log/slog"
)

// saidCounts are numbers of missing listeners that were logged. There may be thousands, for one
// reason, so none has a line of its own.
type saidCounts struct{ absent, over int }

// sayCounts logs how many listeners are missing because the node does not have the address, or
// because there are too many, if that has changed. A Service over the limit is told by an event.
func (f *Forwarder) sayCounts() {
	var now saidCounts
	for e := range f.missing {
		switch {
		case e.absent:
			now.absent++
		case e.said == (placesError{f.limits.places}).Error():
			now.over++
			if !e.told {
				e.told = true
				o := e.owner.Load()
				f.failed(o.key.name.NamespacedName, errors.New(e.vip.String()+" is not served: "+e.said))
			}
		}
	}
	if now.absent != f.said.absent {
		f.log.LogAttrs(f.ctx, slog.LevelWarn, "addresses that the node does not have are not served", slog.Int("listeners", now.absent),
			slog.Bool("may_add_addresses", f.device != nil))
	}
	if now.over != f.said.over {
		f.log.LogAttrs(f.ctx, slog.LevelWarn, "too many listeners: some are not open", slog.Int("missing", now.over),
			slog.Int("most", f.limits.places), slog.String("remedy", "raise the limit of open files (RLIMIT_NOFILE)"))
	}
	f.said = now
}
