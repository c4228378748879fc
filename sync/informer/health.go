package informer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strconv"
	"sync"
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
)

const (
	// slow is for how long a request may be without an answer before that is logged. Lists
	// of the largest clusters begin to arrive sooner.
	slow = 10 * time.Second
	// watchEvery and watchBurst bound how often watches of one kind begin. They usually
	// last for minutes, and client-go waits between those that fail, but not between
	// those that end soon in the orderly way, or are cut while they stream the initial list.
	watchEvery = 10 * time.Second
	watchBurst = 10
)

var (
	// errNoAnswer is a connection that was accepted and closed, as by a load balancer
	// without a server. client-go makes it a watch that ends at once, and no error.
	errNoAnswer = errors.New("connection was closed without an answer")
	errSilent   = errors.New("no answer")
	errNoList   = errors.New("answer has no resource version: something else answers in the API server's place")
)

// health watches the requests for one kind: it logs when they begin to fail and when
// they succeed again, finds out what the server can't do, and keeps client-go from
// believing what is no answer. client-go's own error handler is not told of all
// failures (connections refused), nor of any success.
type health struct {
	log      *slog.Logger
	optional bool
	giveUp   func() // ends the informer
	pace     *rate.Limiter

	mu        sync.Mutex
	said      bool   // a failure was logged, and no success since
	delivered bool   // the initial list was
	short     bool   // a watch ended at once, and none has worked since
	noFields  bool   // the server doesn't know our field selector
	newest    uint64 // resource version that was seen
}

func newHealth(log *slog.Logger, optional bool) *health {
	return &health{log: log, optional: optional, pace: rate.NewLimiter(rate.Every(watchEvery), watchBurst)}
}

// synced says that the initial list has been delivered: from then on, the kind is
// one that the server has, whatever it answers.
func (h *health) synced() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.delivered = true
}

// observe returns the functions that list and watch r, and give what comes to be read.
func (h *health) observe(r *resource, into *store) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return h.list(ctx, r, into, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
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
	// An empty object decodes as an empty list, upon which everything would be removed.
	m, err := meta.ListAccessor(out)
	if err == nil && m.GetResourceVersion() == "" {
		err = errNoList
	}
	var read *objects
	if err == nil {
		read, err = into.listed(out)
	}
	if err != nil {
		h.failed(ctx, "list", err)
		return nil, err
	}
	h.took(ctx, read.ResourceVersion)
	return read, nil
}

// stream begins a watch with all that there is.
func (h *health) stream(ctx context.Context, r *resource, into *store, o metav1.ListOptions) (watch.Interface, error) {
	// After these errors client-go would try again without a list, which is right, but
	// wait for up to a minute before, even if ctx ends.
	delay := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 1, Cap: 30 * time.Second, Steps: 10}
	for {
		out, err := h.watch(ctx, r, o)
		switch {
		case utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err):
		case err != nil:
			return nil, err
		default:
			return newStream(ctx, h, into, out, initialEvents, 0), nil
		}
		select {
		case <-time.After(delay.Step()):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// resume goes on with a watch from a version that is known.
func (h *health) resume(ctx context.Context, r *resource, into *store, o metav1.ListOptions) (watch.Interface, error) {
	from, _ := parseVersion(o.ResourceVersion)
	h.mu.Lock()
	h.newest = max(h.newest, from)
	h.mu.Unlock()
	if h.failing() {
		// A server that was away may come back with the state of a backup. It would let us
		// watch from a version that it has yet to reach, and say nothing until then.
		probe := metav1.ListOptions{Limit: 1, ResourceVersion: o.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
		_, err := request(ctx, h, "list", r, probe, r.list)
		if tooLarge(err) {
			return nil, apierrors.NewResourceExpired(fmt.Sprintf("version %s is not known to the API server", o.ResourceVersion))
		}
		if err != nil {
			return nil, err
		}
	}
	out, err := h.watch(ctx, r, o)
	if err != nil {
		return nil, err
	}
	return newStream(ctx, h, into, out, changes, from), nil
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

// request adds the selectors to a request, leaves out what the server refuses, and
// tells h if it fails or takes long.
func request[T any](ctx context.Context, h *health, verb string, r *resource, o metav1.ListOptions, do func(context.Context, metav1.ListOptions) (T, error)) (T, error) {
	ctx, attempts := withAttempts(ctx)
	defer time.AfterFunc(slow, func() { h.failed(ctx, verb, attempts.last(errSilent)) }).Stop()
	h.mu.Lock()
	noFields := h.noFields
	h.mu.Unlock()
	o.LabelSelector = r.labels
	if !noFields {
		o.FieldSelector = r.fields
	}
	out, err := do(ctx, o)
	if apierrors.IsBadRequest(err) && o.FieldSelector != "" && r.spare {
		h.mu.Lock()
		h.noFields = true
		h.mu.Unlock()
		h.log.LogAttrs(ctx, slog.LevelInfo, "API server can't select by field; reading more than necessary",
			slog.String("field_selector", r.fields), slog.Any("err", err))
		o.FieldSelector = ""
		out, err = do(ctx, o)
	}
	if o.SendInitialEvents != nil && apierrors.IsInvalid(err) {
		return out, err // the server can't stream the initial list; client-go asks for a plain one next
	}
	if err != nil {
		h.failed(ctx, verb, err)
	}
	return out, err
}

// failed logs the first failure. err must not be nil.
func (h *health) failed(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil || errors.Is(err, context.Canceled) || expired(err) || tooLarge(err) {
		return // we stop, or client-go lists again: nothing is wrong
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.optional && !h.delivered && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err)) {
		h.log.LogAttrs(ctx, slog.LevelInfo, "API server doesn't offer this resource; going on without", slog.Any("err", err))
		h.giveUp()
		return
	}
	if h.said {
		return
	}
	h.said = true
	h.log.LogAttrs(ctx, slog.LevelError, "reading from the API server fails; keeping what is known, and retrying",
		slog.String("verb", verb), slog.Any("err", err))
}

// endedAtOnce is told of a watch that ended at once, in the orderly way. A server that
// shuts down does that, once.
func (h *health) endedAtOnce(ctx context.Context) {
	h.mu.Lock()
	again := h.short
	h.short = true
	h.mu.Unlock()
	if again {
		h.failed(ctx, "watch", errShort)
	}
}

func (h *health) failing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.said
}

func (h *health) recovered(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.short = false
	if h.said {
		h.said = false
		h.log.LogAttrs(ctx, slog.LevelInfo, "reading from the API server again")
	}
}

// took is told of the version of each whole list.
func (h *health) took(ctx context.Context, version string) {
	v, ok := parseVersion(version)
	if !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if v < h.newest {
		h.log.LogAttrs(ctx, slog.LevelWarn, "API server has an older state than before, as from a backup; following it",
			slog.Uint64("resource_version", v), slog.Uint64("before", h.newest))
	}
	h.newest = v
}

func expired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// tooLarge says that the server has not come as far as the version that was asked for.
func tooLarge(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// parseVersion returns a resource version as a number, which the versions of all our
// kinds are, and grow (KEP-5504).
func parseVersion(s string) (uint64, bool) {
	v, err := strconv.ParseUint(s, 10, 64)
	return v, err == nil
}
