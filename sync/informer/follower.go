package informer

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/vmapd/vmapd/sync/kube/client"
	"github.com/vmapd/vmapd/sync/reconcile"
)

const (
	// watchEvery and watchBurst bound how often watches of one kind begin. They usually last for minutes. client-go pauses
	// after a watch that failed, but not after one that ended soon without an error.
	watchEvery = 2500 * time.Millisecond
	watchBurst = 10
	// slow is how long a request may go without a response, or a streamed list without objects, before
	// that is logged. Lists of the largest clusters begin to arrive sooner.
	slow = 10 * time.Second
	// retryOptional is the least time until an optional kind is tried again: the server may be
	// upgraded. Thousands of nodes may ask, so the time is long.
	retryOptional = 10 * time.Minute
)

var (
	errSilent = errors.New("no response")
	errNoList = errors.New("response has no resourceVersion: it is not an API server's")
	errPlain  = errors.New("streamed lists are not used")
)

// follower keeps one kind of objects up to date in the state.
type follower struct {
	*resource
	store     *store
	log       *slog.Logger
	delivered func()        // called when the initial list is in the state or unavailable, or when ctx ends
	quiet     time.Duration // see [slow]
	pace      *rate.Limiter

	noFields   atomic.Bool // the server doesn't know our field selector
	unstreamed atomic.Bool // plain lists are requested: see Source.Plain, or the server does not complete streamed ones
	cut        atomic.Bool // a watch has ended, and nothing has been read since
	short      atomic.Bool // a watch ended at once, and none has worked since

	mu      sync.Mutex // also while logging, for the order of messages
	known   bool       // the initial list is in the state
	lacking bool       // the server does not have this kind
	heard   time.Time
	failure Failure         // its Since is zero while there is none
	logged  map[string]bool // the classes of errors of this failure
}

func newFollower(r *resource, s *Source, state *reconcile.State, delivered func()) *follower {
	f := &follower{
		resource: r, log: s.Log.With(slog.String("resource", r.name)), delivered: delivered,
		quiet: cmp.Or(s.quiet, slow),
		pace:  rate.NewLimiter(rate.Every(watchEvery), watchBurst),
	}
	f.unstreamed.Store(s.Plain)
	f.store = newStore(r, state, f.listed)
	return f
}

// listed is called when a list is in the state.
func (f *follower) listed() {
	f.mu.Lock()
	f.known, f.heard = true, time.Now()
	f.mu.Unlock()
	f.delivered()
}

// run runs client-go's informer until ctx ends. It is made as [cache.NewInformerWithOptions] makes it, which has no
// WatchErrorHandler, and would keep all objects a second time.
func (f *follower) run(ctx context.Context) {
	defer f.delivered()
	logger := klog.FromContext(ctx)
	cache.New(&cache.Config{
		Queue: cache.NewRealFIFOWithOptions(cache.RealFIFOOptions{
			Logger: &logger, Name: f.name, Transformer: f.store.transform, AtomicEvents: true,
		}),
		Process:           f.store.process,
		ListerWatcher:     &cache.ListWatch{ListWithContextFunc: f.list, WatchFuncWithContext: f.watch},
		ObjectType:        f.example,
		ObjectDescription: f.name,
		WatchErrorHandlerWithContext: func(ctx context.Context, _ *cache.Reflector, err error) {
			f.failed(ctx, "list", err)
		},
	}).RunWithContext(ctx)
}

// list answers client-go's request for a list. Its errors come to the WatchErrorHandler.
func (f *follower) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	f.rest(ctx)
	f.distrust(o)
	out, err := request(ctx, f, "list", o, f.resource.list)
	if err != nil {
		return nil, err
	}
	// An empty object decodes as an empty list: everything would be removed.
	if m, err := meta.ListAccessor(out); err != nil || m.GetResourceVersion() == "" {
		return nil, errNoList
	}
	f.store.complete()
	f.cut.Store(false)
	return out, nil
}

// watch answers client-go's request for a watch, with the initial list if the options ask for it. Some of its errors
// don't come to the WatchErrorHandler.
func (f *follower) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	initial := o.SendInitialEvents != nil
	if initial && f.unstreamed.Load() {
		return nil, errPlain
	}
	f.rest(ctx)
	if err := f.pace.Wait(ctx); err != nil {
		return nil, err
	}
	if !initial {
		return f.resumed(ctx, o)
	}
	out, err := f.begin(ctx, o)
	if err == nil {
		return out, nil
	}
	if apierrors.IsInvalid(err) {
		return nil, err // the server can't stream the initial list; client-go requests a plain one next
	}
	f.failed(ctx, "watch", err)
	if utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err) {
		// client-go would sleep for up to a minute, even if ctx ends. After another error it requests a plain list.
		return nil, errors.New(err.Error())
	}
	return nil, err
}

// resumed continues a watch when the API server answers again. client-go would wait for up to a minute between two
// attempts, and so long would a change wait for the node after an outage; here it is 10 to 20 s, and less at first.
func (f *follower) resumed(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	pause := wait.Backoff{Duration: 800 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 10 * time.Second}
	for {
		out, err := f.begin(ctx, o)
		if err == nil {
			return out, nil
		}
		f.failed(ctx, "watch", err)
		busy := apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err)
		if _, away := errors.AsType[*url.Error](err); !away && !busy {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause.Step()):
		}
	}
}

func (f *follower) begin(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	ctx, last := client.WithLast(ctx)
	ctx, cancel := context.WithCancel(ctx)
	s := &stream{f: f, cancel: cancel, out: make(chan watch.Event), initial: o.SendInitialEvents != nil}
	s.newest, _ = parseVersion(o.ResourceVersion)
	var err error
	if s.initial {
		f.distrust(o)
		s.guard(ctx, last)
	} else {
		err = f.resume(ctx, o)
	}
	if err == nil {
		s.Interface, err = request(ctx, f, "watch", o, f.resource.watch)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	go s.run(ctx)
	return s, nil
}

// resume is called before a watch continues from a known version. A server that was restored from a backup would be
// silent until it has as many versions again; asked for an object that is not older than a version, it says so.
func (f *follower) resume(ctx context.Context, o metav1.ListOptions) error {
	if !f.cut.Load() {
		return nil
	}
	_, err := request(ctx, f, "list", o, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return f.one(ctx, o.ResourceVersion)
	})
	f.cut.Store(err != nil)
	return err
}

// distrust is called before a list. client-go asks for one of any version once the server does not have ours: then
// versions no longer mean what they meant before.
func (f *follower) distrust(o metav1.ListOptions) {
	if o.ResourceVersion == "" && o.Continue == "" && f.store.forget() {
		f.log.Warn("API server returned to an older state, as after a restore; following it")
	}
}

// rest waits for long if the server does not have this kind.
func (f *follower) rest(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.lacking {
		return
	}
	f.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-time.After(retryOptional + rand.N(retryOptional)):
	}
	f.mu.Lock()
	f.lacking = false
}

// request adds the selectors to a request, omits those that the server refuses, and logs if it takes long.
func request[T any](
	ctx context.Context, f *follower, verb string, o metav1.ListOptions,
	do func(context.Context, metav1.ListOptions) (T, error),
) (T, error) {
	ctx, last := client.WithLast(ctx)
	defer time.AfterFunc(f.quiet, func() { f.failed(ctx, verb, cmp.Or(last(), errSilent)) }).Stop()
	o.LabelSelector = f.labels
	if !f.noFields.Load() {
		o.FieldSelector = f.fields
	}
	out, err := do(ctx, o)
	if apierrors.IsBadRequest(err) && o.FieldSelector != "" && f.spare {
		f.noFields.Store(true)
		f.log.Info("API server refuses field selector; reading all objects",
			slog.String("field_selector", f.fields), slog.Any("err", err))
		o.FieldSelector = ""
		out, err = do(ctx, o)
	}
	return out, err
}
