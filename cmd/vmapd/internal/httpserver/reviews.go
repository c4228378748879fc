package httpserver

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
)

// Limits of the caches and of concurrent requests to the API server.
//
// rememberYes is how long a revoked token or right still counts. The kubelet, which also is on each
// node, remembers a token for two minutes and a right for five (its cacheTTL and
// cacheAuthorizedTTL); servers of which a cluster has few remember both for ten seconds. With these
// ten seconds, each scrape would be two requests to the API server, from each of thousands of nodes.
const (
	rememberYes   = 2 * time.Minute
	rememberNo    = 10 * time.Second
	maxRemembered = 1024 // in each cache
	maxReviews    = 8    // at a time
	reviewTimeout = 5 * time.Second
)

// reviews are requests to the API server: there is at most one for a key at a time, and its
// answer is cached. Negative answers have a cache of their own, so that guessed tokens cannot
// displace the positive ones.
type reviews[A any] struct {
	slots chan struct{} // shared by all reviews of an Authorizer
	yes   *cache.LRUExpireCache
	no    *cache.LRUExpireCache

	mu    sync.Mutex
	asked map[string]*review[A]
}

// review is a pending request.
type review[A any] struct {
	done   chan struct{} // closed when the other fields are valid
	answer A
	err    error
	left   bool // the client that caused it left before the answer
}

func newReviews[A any](slots chan struct{}) *reviews[A] {
	return &reviews[A]{
		slots: slots, asked: map[string]*review[A]{},
		yes: cache.NewLRUExpireCache(maxRemembered), no: cache.NewLRUExpireCache(maxRemembered),
	}
}

// get returns the cached answer for a key, or that of ask, which also reports whether the answer
// is positive. Errors are not cached, but all clients that wait for the answer get them.
func (q *reviews[A]) get(ctx context.Context, key string, ask func(context.Context) (A, bool, error)) (A, error) {
	for {
		answer, r, mine := q.join(key)
		switch {
		case r == nil:
			return answer, nil
		case mine:
			q.ask(ctx, key, r, ask)
			return r.answer, r.err
		}
		select {
		case <-r.done:
			if !r.left {
				return r.answer, r.err
			}
		case <-ctx.Done():
			return answer, context.Cause(ctx)
		}
	}
}

// join returns a cached answer, or the pending review of the key. If mine, the caller must ask.
func (q *reviews[A]) join(key string) (answer A, r *review[A], mine bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range []*cache.LRUExpireCache{q.yes, q.no} {
		if a, ok := c.Get(key); ok {
			return a.(A), nil, false
		}
	}
	if r, ok := q.asked[key]; ok {
		return answer, r, false
	}
	r = &review[A]{done: make(chan struct{})}
	q.asked[key] = r
	return answer, r, true
}

func (q *reviews[A]) ask(ctx context.Context, key string, r *review[A], ask func(context.Context) (A, bool, error)) {
	yes := false
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		switch {
		case r.err != nil:
			r.left = ctx.Err() != nil
		case yes:
			q.yes.Add(key, r.answer, rememberYes)
		default:
			q.no.Add(key, r.answer, rememberNo)
		}
		delete(q.asked, key)
		close(r.done)
	}()
	limited, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	select {
	case q.slots <- struct{}{}:
		defer func() { <-q.slots }()
		r.answer, yes, r.err = ask(limited)
	case <-limited.Done():
		r.err = context.Cause(limited)
	}
}
