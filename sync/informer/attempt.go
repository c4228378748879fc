package informer

import (
	"context"
	"errors"
	"net/http"
	"sync"
)

// attempts is what came of the last attempt of a request. client-go makes up to ten
// before it says anything, and what it then says of a watch is not always an error.
type attempts struct {
	mu  sync.Mutex
	err error
}

type attemptsKey struct{}

func withAttempts(ctx context.Context) (context.Context, *attempts) {
	if a, ok := ctx.Value(attemptsKey{}).(*attempts); ok {
		return ctx, a
	}
	a := new(attempts)
	return context.WithValue(ctx, attemptsKey{}, a), a
}

// noteAttempt is called by the transport.
func noteAttempt(ctx context.Context, resp *http.Response, err error) {
	a, ok := ctx.Value(attemptsKey{}).(*attempts)
	if !ok {
		return
	}
	if resp != nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
}

// last returns the error of the last attempt, or otherwise if there was none.
func (a *attempts) last(otherwise error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return a.err
	}
	return otherwise
}
