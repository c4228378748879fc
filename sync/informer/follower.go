package informer

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/vmapd/vmapd/sync/reconcile"
)

const (
	// watchEvery and watchBurst bound how often watches of one kind begin. They usually last for minutes. client-go pauses
	// after a watch that failed, but not after one that ended soon without an error.
	watchEvery, watchBurst = 2500 * time.Millisecond, 10
	// slow is how long a request may go without a response before that is logged. Lists of the largest clusters begin to
	// arrive sooner.
	slow = 10 * time.Second
	// giveUpAfter is how many times as long a streamed list may go without a few objects, of which a busy cluster has
	// less.
	giveUpAfter, fewObjects = 3, 100
	// startPause is the pause between attempts before the first list, when rules wait for it, and laterPause the longest
	// one for all nodes of a cluster after an outage. They are up to twice as long by chance.
	startPause, laterPause = 2 * time.Second, 10 * time.Second
	// retryOptional is the least time until an optional kind is tried again: the server may be
	// upgraded. Thousands of nodes may ask, so the time is long.
	retryOptional = 10 * time.Minute
)

var (
	errSilent     = errors.New("no usable response for a while; client-go repeats requests that are refused as too many")
	errNoList     = errors.New("response has no resourceVersion: it is not an API server's")
	errPlain      = errors.New("streamed lists are not used")
	errLacking    = errors.New("the API server does not have this kind")
	errNoBookmark = errors.New("the API server sends no bookmark, which ends the initial list; requesting a plain list")
)

// follower keeps one kind of objects up to date in the state.
type follower struct {
	*resource
	state     *reconcile.State
	log       *slog.Logger
	delivered func()        // called when the initial list is in the state or unavailable, or when ctx ends
	plain     bool          // see Source.Plain
	quiet     time.Duration // see [slow]
	pace      *rate.Limiter

	// The rest of these is the reflector's, which calls one function after the other.
	noFields bool // the server doesn't know our field selector
	objects  int  // of the streamed list

	mu       sync.Mutex  // also while logging, for the order of messages
	complete bool        // the initial list is in the state
	lacking  bool        // the server does not have this kind
	guard    *time.Timer // ends a streamed list without progress; nil: none is read
	stalled  bool        // it did: the next list is a plain one
	heard    time.Time
	failure  Failure         // its Since is zero while there is none
	logged   map[string]bool // the remedies of this failure
}

func newFollower(r *resource, s *Source, state *reconcile.State, delivered func()) *follower {
	return &follower{
		resource: r, state: state, log: s.Log.With(slog.String("resource", r.name)), delivered: delivered,
		plain: s.Plain, quiet: cmp.Or(s.quiet, slow), pace: rate.NewLimiter(rate.Every(watchEvery), watchBurst),
	}
}

// run runs client-go's reflector until ctx ends. An informer would keep all objects a second time.
func (f *follower) run(ctx context.Context) {
	defer f.delivered()
	logger := klog.FromContext(ctx)
	r := cache.NewReflectorWithOptions(
		&cache.ListWatch{ListWithContextFunc: f.list, WatchFuncWithContext: f.watch}, f.example, f,
		cache.ReflectorOptions{Logger: &logger, Name: f.name, TypeDescription: f.name, Backoff: backoff()})
	// Most connections that break end a watch with such an error. By default, client-go lists everything again.
	r.MaxInternalErrorRetryDuration = time.Minute
	later := backoff().DelayWithReset(clock.RealClock{}, 2*time.Minute) // as client-go
	for ctx.Err() == nil {
		f.mu.Lock()
		f.lacking = false
		f.mu.Unlock()
		_ = r.ListAndWatchWithContext(ctx) // list and watch have noted the error
		pause := later()
		f.mu.Lock()
		switch {
		case f.lacking:
			pause = wait.Jitter(retryOptional, 1)
		case !f.complete:
			pause = wait.Jitter(startPause, 1)
		}
		f.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func backoff() *wait.Backoff {
	return &wait.Backoff{Duration: 800 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: laterPause}
}

// list answers client-go's request for a list.
func (f *follower) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	f.mu.Lock()
	f.unguard() // of a stream that failed
	lacking := f.lacking
	f.mu.Unlock()
	if lacking {
		return nil, errLacking // watch has asked
	}
	out, err := request(ctx, f, "list", o, f.resource.list)
	if err == nil {
		// An empty object decodes as an empty list: everything would be removed.
		if m, bad := meta.ListAccessor(out); bad != nil || m.GetResourceVersion() == "" {
			err = errNoList
		}
	}
	if err != nil {
		f.failed(ctx, "list", err)
		return nil, err
	}
	return out, nil
}

// watch answers client-go's request for a watch, with the initial list if the options ask for it.
func (f *follower) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	initial := o.SendInitialEvents != nil
	f.mu.Lock()
	f.unguard()
	plain := f.plain || f.stalled
	f.mu.Unlock()
	if initial && plain {
		return nil, errPlain
	}
	if err := f.pace.Wait(ctx); err != nil {
		return nil, err
	}
	w, err := request(ctx, f, "watch", o, f.resource.watch)
	switch {
	case err == nil && initial:
		f.begin(ctx, w)
		return w, nil
	case err == nil:
		f.works()
		return w, nil
	}
	if initial && apierrors.IsInvalid(err) {
		return nil, err // the server can't stream the initial list; client-go requests a plain one next
	}
	f.failed(ctx, "watch", err)
	_, away := errors.AsType[*url.Error](err)
	switch {
	case initial:
		// After some errors, client-go would wait here even if ctx ends. After this one it requests a plain list.
		return nil, errors.New(err.Error())
	case away || apierrors.IsServiceUnavailable(err):
		// After this error client-go tries again from the same version. After others it would list everything.
		return nil, apierrors.NewTooManyRequests(err.Error(), 0)
	}
	return nil, err
}

// begin is called when a streamed list has begun. An API server may accept the request, and send no bookmark at the
// end. client-go waits until the watch ends, for five to ten minutes.
func (f *follower) begin(ctx context.Context, w watch.Interface) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.objects = 0
	f.guard = time.AfterFunc(giveUpAfter*f.quiet, func() {
		f.failed(ctx, "watch", errNoBookmark)
		f.mu.Lock()
		f.stalled = true
		f.mu.Unlock()
		w.Stop()
	})
}

// unguard ends the guard, if there is one, and reports that.
func (f *follower) unguard() bool {
	guarded := f.guard != nil
	if guarded {
		f.guard.Stop()
		f.guard = nil
	}
	return guarded
}

// progress is called for each object of a streamed list.
func (f *follower) progress() {
	if f.objects++; f.objects%fewObjects == 0 {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.guard != nil {
			f.guard.Reset(giveUpAfter * f.quiet)
		}
	}
}

// listed is called when a list is in the state.
func (f *follower) listed() {
	f.mu.Lock()
	streamed := f.unguard()
	f.complete, f.stalled, f.heard = true, false, time.Now()
	f.mu.Unlock()
	if streamed {
		f.works()
	}
	f.delivered()
}

// request adds the selectors to a request, omits those that the server refuses, and logs if it takes long.
func request[T any](
	ctx context.Context, f *follower, verb string, o metav1.ListOptions,
	do func(context.Context, metav1.ListOptions) (T, error),
) (T, error) {
	defer time.AfterFunc(f.quiet, func() { f.failed(ctx, verb, errSilent) }).Stop()
	o.LabelSelector = f.labels
	if !f.noFields {
		o.FieldSelector = f.fields
	}
	out, err := do(ctx, o)
	if apierrors.IsBadRequest(err) && o.FieldSelector != "" && f.spare {
		f.noFields = true
		f.log.Info("API server refuses field selector; reading all objects",
			slog.String("field_selector", f.fields), slog.Any("err", err))
		o.FieldSelector = ""
		out, err = do(ctx, o)
	}
	return out, err
}
