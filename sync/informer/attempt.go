package informer

import (
	"context"
	"net/http"
	"sync/atomic"
)

// attempts has the result of a request's last attempt. client-go makes up to ten attempts
// before it returns, and does not always return an error for a watch that failed.
type attempts struct{ err atomic.Pointer[error] }

type attemptsKey struct{}

func withAttempts(ctx context.Context) (context.Context, *attempts) {
	if a, ok := ctx.Value(attemptsKey{}).(*attempts); ok {
		return ctx, a
	}
	a := new(attempts)
	return context.WithValue(ctx, attemptsKey{}, a), a
}

// noteAttempt stores the result of an attempt. The transport calls it.
func noteAttempt(ctx context.Context, resp *http.Response, err error) {
	if w, ok := ctx.Value(wordKey{}).(*lastWord); ok && resp != nil {
		w.answered(resp)
	}
	a, ok := ctx.Value(attemptsKey{}).(*attempts)
	if !ok {
		return
	}
	if resp != nil && resp.StatusCode != http.StatusOK {
		err = &statusError{resp.StatusCode, resp.Status}
	}
	a.err.Store(&err)
}

// last returns the error of the last attempt, or otherwise if there was none.
func (a *attempts) last(otherwise error) error {
	if err := a.err.Load(); err != nil && *err != nil {
		return *err
	}
	return otherwise
}

// statusError is an answer without objects.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return e.text }
