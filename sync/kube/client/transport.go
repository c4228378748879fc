package client

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Skew returns the server's clock minus this node's, as of its last answer of any kind, and false before the first one.
// It is exact to a second and the time of the answer's travel. It may be called at any time.
func (c *Client) Skew() (time.Duration, bool) {
	if skew := c.skew.Load(); skew != nil {
		return *skew, true
	}
	return 0, false
}

type lastKey struct{}

// WithLast returns a context for a request, and a function for the error of its last attempt, which may be nil:
// client-go makes up to ten attempts before it returns.
func WithLast(ctx context.Context) (context.Context, func() error) {
	last, ok := ctx.Value(lastKey{}).(*atomic.Pointer[error])
	if !ok {
		last = new(atomic.Pointer[error])
		ctx = context.WithValue(ctx, lastKey{}, last)
	}
	return ctx, func() error {
		if err := last.Load(); err != nil {
			return *err
		}
		return nil
	}
}

// noting is a transport that notes the server's time, and how attempts end.
type noting struct {
	http.RoundTripper
	skew *atomic.Pointer[time.Duration]
}

// RoundTrip implements [http.RoundTripper].
func (n noting) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := n.RoundTripper.RoundTrip(r)
	problem := err
	if err == nil {
		if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
			const half = 500 * time.Millisecond // of the second that the header leaves out
			skew := time.Until(date.Add(half))
			n.skew.Store(&skew)
		}
		if resp.StatusCode != http.StatusOK {
			status := metav1.Status{Code: int32(resp.StatusCode), Message: resp.Status} //nolint:gosec // three digits
			problem = &apierrors.StatusError{ErrStatus: status}
		}
	}
	if last, ok := r.Context().Value(lastKey{}).(*atomic.Pointer[error]); ok {
		last.Store(&problem)
	}
	return resp, err
}

// WrappedRoundTripper lets client-go close idle connections.
func (n noting) WrappedRoundTripper() http.RoundTripper { return n.RoundTripper }
