package informer

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// health watches the requests for one kind: it logs when they begin to fail and when
// they succeed again, and finds out what the server can't do. client-go's own error
// handler is not told of all failures (connections refused), nor of any success.
type health struct {
	log      *slog.Logger
	optional bool
	giveUp   func() // ends the informer

	mu        sync.Mutex
	said      bool // a failure was logged, and no success since
	delivered bool // the initial list was
	noFields  bool // the server doesn't know our field selector
}

// synced says that the initial list has been delivered: from then on, the kind is
// one that the server has, whatever it answers.
func (h *health) synced() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.delivered = true
}

// observe returns the functions that list and watch r.
func (h *health) observe(r *resource) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			out, err := request(ctx, h, r, o, r.list)
			if err != nil {
				h.failed(ctx, "list", err)
			}
			return out, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			out, err := request(ctx, h, r, o, r.watch)
			switch {
			case err == nil && reflect.TypeOf(out) == emptyWatch:
				h.failed(ctx, "watch", errNoAnswer)
			case err == nil:
				h.recovered(ctx)
			case o.SendInitialEvents != nil && apierrors.IsInvalid(err):
				// The server can't stream the initial list; client-go asks for a plain one next.
			default:
				h.failed(ctx, "watch", err)
			}
			return out, err
		},
	}
}

// errNoAnswer is a connection that was accepted and closed, as by a load balancer
// without a server. client-go makes it a watch that ends at once, and no error.
var errNoAnswer = errors.New("connection was closed without an answer")

var emptyWatch = reflect.TypeOf(watch.NewEmptyWatch())

// request adds the selectors to a request, and leaves out what the server refuses.
func request[T any](ctx context.Context, h *health, r *resource, o metav1.ListOptions, do func(context.Context, metav1.ListOptions) (T, error)) (T, error) {
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
	return out, err
}

func (h *health) failed(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil || errors.Is(err, context.Canceled) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
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

func (h *health) recovered(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.said {
		h.said = false
		h.log.LogAttrs(ctx, slog.LevelInfo, "reading from the API server again")
	}
}
