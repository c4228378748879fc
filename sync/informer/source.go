package informer

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// retryOptional is after how long, at least, a kind is tried again that the server
// doesn't have: it may be upgraded. There are thousands of nodes, so not often.
const retryOptional = 10 * time.Minute

// Source follows an API server and writes what concerns this node into a
// [reconcile.State].
type Source struct {
	Client   kubernetes.Interface
	NodeName string // of the only Node to read
	Log      *slog.Logger
}

// Run calls Complete once the initial lists of Services, EndpointSlices and the
// Node, and of ServiceCIDRs if the server has them, are in the state. It then writes
// each change until ctx ends, and returns nil. Errors of the server are logged once
// per kind, until it is watched again; they change nothing in the state.
func (s *Source) Run(ctx context.Context, state *reconcile.State) error {
	if s.NodeName == "" {
		return errors.New("follow the API server: no node name")
	}
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(demoted{s.Log.Handler()}))
	start := time.Now()

	var all, initial sync.WaitGroup
	for _, r := range resources(s.Client, s.NodeName) {
		f := &follower{resource: r, client: s.Client, state: state, log: s.Log.With(slog.String("resource", r.name))}
		initial.Add(1)
		delivered := sync.OnceFunc(initial.Done)
		all.Go(func() { f.run(ctx, delivered) })
	}
	complete := make(chan struct{})
	all.Go(func() {
		initial.Wait()
		close(complete)
	})
	select {
	case <-complete:
		if ctx.Err() == nil {
			state.Complete()
			s.Log.LogAttrs(ctx, slog.LevelInfo, "initial lists read; watching", slog.Duration("took", time.Since(start)))
		}
	case <-ctx.Done():
	}
	all.Wait()
	return nil
}

// follower keeps one kind of objects up to date in the state.
type follower struct {
	*resource
	client kubernetes.Interface
	state  *reconcile.State
	log    *slog.Logger
}

// run follows until ctx ends. It calls delivered when the initial list is in the
// state, or will not come, or ctx ended.
func (f *follower) run(ctx context.Context, delivered func()) {
	defer delivered()
	for {
		h := newHealth(f.log, f.optional)
		f.inform(ctx, h, delivered)
		if ctx.Err() != nil {
			return
		}
		// Only what is optional ends before ctx does.
		delivered()
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryOptional + rand.N(retryOptional)):
		}
	}
}

// inform runs one informer until ctx ends or h finds that the server doesn't have
// this kind.
func (f *follower) inform(ctx context.Context, h *health, delivered func()) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h.giveUp = cancel
	informer := cache.NewSharedIndexInformerWithOptions(
		cache.ToListWatcherWithWatchListSemantics(h.observe(f.resource), f.client),
		f.example,
		cache.SharedIndexInformerOptions{ObjectDescription: f.name},
	)
	// These fail only once the informer runs.
	_ = informer.SetTransform(func(obj any) (any, error) {
		f.strip(obj)
		return obj, nil
	})
	// The errors of lists and watches are seen by h, and more of them than come here.
	_ = informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {})
	registration, _ := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: f.put,
		UpdateFunc: func(old, obj any) {
			// A list of everything, after a watch could not be resumed, repeats what did
			// not change. The version alone does not tell: from a backup, one may come
			// twice.
			if version(old) != version(obj) || !reflect.DeepEqual(old, obj) {
				f.put(obj)
			}
		},
		DeleteFunc: f.delete,
	})

	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		select {
		case <-registration.HasSyncedChecker().Done():
			h.synced()
			delivered()
		case <-ctx.Done():
		}
	})
	informer.RunWithContext(ctx)
	cancel()
}

func (f *follower) put(obj any) {
	f.state.Update(f.change(obj), func(b *model.Builder) { f.set(b, obj) })
}

func (f *follower) delete(obj any) {
	// The key is all that is known of an object whose deletion was not seen.
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		f.log.LogAttrs(context.Background(), slog.LevelError, "deletion of an unknown object", slog.Any("err", err))
		return
	}
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		f.log.LogAttrs(context.Background(), slog.LevelError, "deletion of an unknown object", slog.Any("err", err))
		return
	}
	f.state.Update(f.change(nil), func(b *model.Builder) {
		f.remove(b, model.NamespacedName{Namespace: namespace, Name: name})
	})
}

func version(obj any) string {
	if m, ok := obj.(metav1.Object); ok {
		return m.GetResourceVersion()
	}
	return ""
}

// demoted is a handler for client-go's own log: what it calls information is for
// debugging here.
type demoted struct{ slog.Handler }

func (d demoted) level(l slog.Level) slog.Level {
	if l < slog.LevelError {
		return min(l, slog.LevelDebug)
	}
	return l
}

func (d demoted) Enabled(ctx context.Context, l slog.Level) bool {
	return d.Handler.Enabled(ctx, d.level(l))
}

func (d demoted) Handle(ctx context.Context, r slog.Record) error {
	r.Level = d.level(r.Level)
	return d.Handler.Handle(ctx, r)
}

func (d demoted) WithAttrs(attrs []slog.Attr) slog.Handler {
	return demoted{d.Handler.WithAttrs(attrs)}
}

func (d demoted) WithGroup(name string) slog.Handler { return demoted{d.Handler.WithGroup(name)} }
