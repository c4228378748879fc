package listening

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// Options of a Watcher.
type Options struct {
	// Found is called once, by the goroutine of Run, for a frontend of a Service on whose
	// address and port a process of the node listens.
	Found func(service model.NamespacedName, fe model.Frontend)
	// Log gets an error of the kernel, once. nil discards it.
	Log *slog.Logger
}

// Watcher looks at frontends on addresses of the node.
type Watcher struct {
	options Options
	listens func(model.VIP) (bool, error)
	wake    chan struct{} // capacity 1: work is pending

	mu     sync.Mutex
	latest *model.Snapshot

	// The rest is Run's alone.
	seen   *model.Snapshot
	failed bool // the last lookup did
}

var _ reconcile.Observer = (*Watcher)(nil)

// New returns a Watcher.
func New(o Options) *Watcher {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Watcher{options: o, listens: Listens, wake: make(chan struct{}, 1)}
}

// Queued implements [reconcile.Observer].
func (w *Watcher) Queued(time.Time) {}

// Done implements [reconcile.Observer].
func (w *Watcher) Done(r reconcile.Round) {
	w.mu.Lock()
	w.latest = r.Snapshot
	w.mu.Unlock()
	reconcile.Signal(w.wake)
}

// Run looks after each change, until ctx ends. Call it once.
func (w *Watcher) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
			w.look(ctx)
		}
	}
}

func (w *Watcher) look(ctx context.Context) {
	w.mu.Lock()
	now := w.latest
	w.mu.Unlock()
	old := w.seen
	if old == nil {
		old = new(model.Snapshot)
	}
	w.seen = now
	for _, f := range model.Families {
		before, family := old.Family(f), now.Family(f)
		if w.moved(before, family) {
			before = new(model.FamilySnapshot)
		}
		for c := range family.ServicePortChanges(before) {
			if c.New != nil {
				w.check(ctx, family, c)
			}
		}
	}
}

// moved reports whether the node has another address than before.
func (w *Watcher) moved(before, now *model.FamilySnapshot) bool {
	return before.Settings == nil || before.Settings != now.Settings && !slices.Equal(before.NodeAddrs, now.NodeAddrs)
}

// check looks at the frontends of a service port that it did not have before.
func (w *Watcher) check(ctx context.Context, family *model.FamilySnapshot, c model.Change[*model.ServicePort]) {
	for _, fe := range c.New.Frontends {
		if fe.Kind != model.ExternalIP && fe.Kind != model.LoadBalancerIP || !slices.Contains(family.NodeAddrs, fe.VIP.Addr) {
			continue
		}
		if c.Old != nil && slices.ContainsFunc(c.Old.Frontends, func(o model.Frontend) bool { return o.VIP == fe.VIP }) {
			continue
		}
		found, err := w.listens(fe.VIP)
		if err != nil && !w.failed {
			w.options.Log.LogAttrs(ctx, slog.LevelInfo, "cannot look up sockets of the node", slog.Any("err", err))
		}
		w.failed = err != nil
		if found {
			w.options.Found(c.New.Name.NamespacedName, fe)
		}
	}
}
