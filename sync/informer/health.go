package informer

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

const (
	// watchEvery and watchBurst bound how often watches of one kind begin. They usually
	// last for minutes. client-go pauses after a watch that failed, but not after one that
	// ended soon without an error, or during the initial list.
	watchEvery = 2500 * time.Millisecond
	watchBurst = 10
)

var (
	// errNoAnswer is a connection that was accepted and closed, as by a load balancer
	// without a server. client-go returns a watch that ends at once, and no error.
	errNoAnswer = errors.New("connection was closed without a response")
	errNoList   = errors.New("response has no resourceVersion: it is not an API server's")
)

// health checks the requests for one kind. It logs when they begin to fail, when they fail
// for another reason, and when they succeed again. It adapts requests to the server's
// abilities, and hides responses from client-go that are not an API server's. client-go's own
// error handler misses some failures (refused connections), and all successes.
type health struct {
	log    *slog.Logger
	of     *resource
	giveUp func()        // ends the informer
	report func(Failure) // Since is zero: it is over
	heard  *atomic.Int64 // when the server last sent something that made sense, in nanoseconds
	pace   *rate.Limiter
	quiet  time.Duration // see [slow]

	// delivered: the initial list has been. From then on, the server is known to have this
	// kind, whatever it answers.
	delivered atomic.Bool
	short     atomic.Bool   // a watch ended at once, and none has worked since
	cut       atomic.Bool   // the last watch ended before its time
	noFields  atomic.Bool   // the server doesn't know our field selector
	plain     atomic.Bool   // the server does not complete streamed lists
	newest    atomic.Uint64 // resource version so far
	listed    atomic.Bool   // the last success was a list, which is of the server's history
	doubted   atomic.Bool   // the server may have another history: its version counts, not ours
	witness   *witness
	before    atomic.Pointer[named] // the witness' object when the last watch ended that was not in doubt

	mu      sync.Mutex // also while logging, for the order of messages
	last    error      // see lastFailure
	trouble trouble
}

// observe returns the functions that list and watch r, and pass objects to into. Lists are not streamed
// while plain returns true.
func (h *health) observe(r *resource, into *store, plain func() bool) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return h.list(ctx, r, into, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents != nil && (h.plain.Load() || plain()) {
				return nil, errPlain
			}
			if err := h.pace.Wait(ctx); err != nil {
				return nil, err
			}
			if o.SendInitialEvents != nil {
				return h.stream(ctx, r, into, o)
			}
			return h.resume(ctx, r, into, o)
		},
	}
}

func (h *health) list(ctx context.Context, r *resource, into *store, o metav1.ListOptions) (runtime.Object, error) {
	out, err := request(ctx, h, "list", r, o, r.list)
	if err != nil {
		return nil, err
	}
	read, err := into.listed(out)
	if err == nil && read.ResourceVersion == "" {
		err = errNoList // an empty object decodes as an empty list: everything would be removed
	}
	if err != nil {
		h.failed(ctx, "list", err)
		return nil, err
	}
	h.took(ctx, read.ResourceVersion)
	h.listed.Store(true)
	return read, nil
}

// stream begins a watch with the initial list.
func (h *health) stream(ctx context.Context, r *resource, into *store, o metav1.ListOptions) (watch.Interface, error) {
	// After these errors client-go would retry without a list, as it should, but wait for up
	// to a minute before, even if ctx ends.
	pauses := newPauses()
	if h.doubted.Load() {
		o.ResourceVersion = "" // the server would wait three seconds for a version of its future
	}
	for {
		out, err := h.begin(ctx, r, o)
		switch {
		case utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err):
		case err != nil:
			return nil, err
		default:
			return newStream(ctx, h, into, out, o, 0, nil), nil
		}
		select {
		case <-time.After(pauses.next(err, 0)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// resume continues with a watch from a known version.
func (h *health) resume(ctx context.Context, r *resource, into *store, o metav1.ListOptions) (watch.Interface, error) {
	from, ok := parseVersion(o.ResourceVersion)
	h.newest.Store(max(h.newest.Load(), from))
	var d *doubt
	if justListed := h.listed.Swap(false); ok && !justListed && (h.cut.Load() || h.failing()) {
		h.doubted.Store(true)
		var err error
		if d, err = h.examine(ctx, r, into, from); err != nil {
			return nil, err
		}
		from = d.from
		o.ResourceVersion = strconv.FormatUint(from, 10)
	}
	out, err := h.watch(ctx, r, o)
	if err != nil {
		return nil, err
	}
	return newStream(ctx, h, into, out, o, from, d), nil
}

func (h *health) watch(ctx context.Context, r *resource, o metav1.ListOptions) (watch.Interface, error) {
	ctx, attempts := withAttempts(ctx)
	out, err := request(ctx, h, "watch", r, o, r.watch)
	if err == nil && reflect.TypeOf(out) == emptyWatch {
		h.failed(ctx, "watch", attempts.last(errNoAnswer))
	}
	return out, err
}

var emptyWatch = reflect.TypeOf(watch.NewEmptyWatch()) //nolint:gochecknoglobals // an unexported type, for reflect.TypeFor

// request adds the selectors to a request, omits those that the server refuses, and reports
// to h if it fails or takes long.
func request[T any](ctx context.Context, h *health, verb string, r *resource, o metav1.ListOptions, do func(context.Context, metav1.ListOptions) (T, error)) (T, error) {
	ctx, attempts := withAttempts(ctx)
	defer time.AfterFunc(h.quiet, func() { h.failed(ctx, verb, attempts.last(errSilent)) }).Stop()
	o.LabelSelector = r.labels
	if !h.noFields.Load() {
		o.FieldSelector = r.fields
	}
	out, err := do(ctx, o)
	if apierrors.IsBadRequest(err) && o.FieldSelector != "" && r.spare {
		h.noFields.Store(true)
		h.log.LogAttrs(ctx, slog.LevelInfo, "API server refuses field selector; reading all objects",
			slog.String("field_selector", r.fields), slog.Any("err", err))
		o.FieldSelector = ""
		out, err = do(ctx, o)
	}
	if o.SendInitialEvents != nil && apierrors.IsInvalid(err) {
		return out, err // the server can't stream the initial list; client-go requests a plain one next
	}
	if err != nil {
		h.failed(ctx, verb, err)
	}
	return out, err
}

// failed logs a failure, unless one of its kind was logged lately. err must not be nil.
func (h *health) failed(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil || errors.Is(err, context.Canceled) || expired(err) || tooLarge(err) {
		return // no failure: vmapd stops, or client-go lists again
	}
	remedy := remedy(h.of, verb, err)
	if h.of.optional != "" && !h.delivered.Load() && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err)) {
		message := "API server does not have this resource: "
		if apierrors.IsForbidden(err) {
			message = "not allowed to read this resource: "
		}
		h.log.LogAttrs(ctx, slog.LevelInfo, message+h.of.optional, withRemedy(remedy, slog.Any("err", err))...)
		h.report(Failure{Resource: h.of.name})
		h.giveUp()
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = err
	isNew := h.trouble.add(verb, remedy, err)
	h.report(Failure{Resource: h.of.name, Since: h.trouble.since, Err: err, Remedy: remedy})
	if isNew {
		h.log.LogAttrs(ctx, slog.LevelError, "cannot read from the API server; keeping the last known state and retrying", h.trouble.attrs(h)...)
	}
}

// remind logs a failure that lasts, until ctx ends.
func (h *health) remind(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		h.mu.Lock()
		if h.trouble.lasts(every) {
			h.log.LogAttrs(ctx, slog.LevelError, "still cannot read from the API server; keeping the last known state and retrying",
				append(h.trouble.attrs(h), slog.Duration("for", time.Since(h.trouble.since).Round(time.Second)))...)
			h.trouble.reminded()
		}
		h.mu.Unlock()
	}
}

// endedAtOnce is called for a watch that ended at once without an error. A server that
// shuts down does that once.
func (h *health) endedAtOnce(ctx context.Context) {
	if h.short.Swap(true) {
		h.failed(ctx, "watch", errShort)
	}
}

func (h *health) failing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.trouble.since.IsZero()
}

// lastFailure returns the last failure since it was called before; nil: there was none.
func (h *health) lastFailure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.last
	h.last = nil
	return err
}

func (h *health) recovered(ctx context.Context) {
	h.short.Store(false)
	h.mu.Lock()
	defer h.mu.Unlock()
	if since := h.trouble.since; !since.IsZero() {
		h.trouble = trouble{}
		h.report(Failure{Resource: h.of.name})
		h.log.LogAttrs(ctx, slog.LevelInfo, "reading from the API server again", slog.Duration("after", time.Since(since).Round(time.Millisecond)))
	}
}

// took is called with the version of each complete list.
func (h *health) took(ctx context.Context, version string) {
	h.heard.Store(time.Now().UnixNano())
	h.doubted.Store(false)
	v, ok := parseVersion(version)
	if !ok {
		return
	}
	if before := h.newest.Swap(v); v < before {
		h.log.LogAttrs(ctx, slog.LevelWarn, "API server returned to an older state, as after a restore; following it",
			slog.Uint64("resource_version", v), slog.Uint64("before", before))
	}
}

func expired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// tooLarge reports whether the requested version is in the server's future.
func tooLarge(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// parseVersion returns a resource version as a number. Versions of all our kinds are numbers
// that grow (KEP-5504).
func parseVersion(s string) (uint64, bool) {
	v, err := strconv.ParseUint(s, 10, 64)
	return v, err == nil
}
