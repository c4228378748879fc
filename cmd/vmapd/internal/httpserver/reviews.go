package httpserver

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
)

// How long an answer of the API server counts, and how many are remembered. It is asked
// few questions at a time, whatever clients do.
const (
	rememberYes   = 2 * time.Minute
	rememberNo    = 10 * time.Second
	maxRemembered = 1024 // of each
	maxReviews    = 8    // at a time
	reviewTimeout = 5 * time.Second
)

// reviews are questions to the API server: each is asked once at a time, and its answer is
// remembered. Those with a no are kept apart, so that somebody who guesses can't push the
// others out.
type reviews[A any] struct {
	slots chan struct{} // shared by all who ask
	yes   *cache.LRUExpireCache
	no    *cache.LRUExpireCache

	mu    sync.Mutex
	asked map[string]*review[A]
}

// review is a question that is being asked.
type review[A any] struct {
	done   chan struct{} // closed when the rest is known
	answer A
	err    error
	left   bool // whoever asked left before the answer
}

func newReviews[A any](slots chan struct{}) *reviews[A] {
	return &reviews[A]{
		slots: slots, asked: map[string]*review[A]{},
		yes: cache.NewLRUExpireCache(maxRemembered), no: cache.NewLRUExpireCache(maxRemembered),
	}
}

// get returns what is remembered under a key, or what ask returns: the answer, and whether
// it is a yes. Errors are not remembered, but shared with those who wait for the answer.
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

// join returns a remembered answer, or the review of that key; it may be the caller's to
// ask.
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
