package informer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// An API server may accept the request for a streamed list, and send no bookmark at the end: its storage may report no
// progress, or it may be too old to know such requests. client-go waits until the watch ends, for five to ten minutes.

const (
	// slow is how long a request may go without a response, or a streamed list without objects, before
	// that is logged. Lists of the largest clusters begin to arrive sooner.
	slow = 10 * time.Second
	// giveUpAfter is how many times as long it takes until plain lists are requested in place of streamed ones.
	giveUpAfter = 3
	// fewObjects is less than a list has in the time slow: a busy cluster has as many new objects.
	fewObjects = 100
)

var (
	errSilent     = errors.New("no response")
	errNoBookmark = errors.New("the API server has sent no bookmark, which ends the initial list")
	errPlain      = errors.New("streamed lists are not used")
)

// Silent reports whether the API server took the request, and did not answer, or not to the end.
func (f Failure) Silent() bool {
	return errors.Is(f.Err, errSilent) || errors.Is(f.Err, errNoBookmark)
}

// progress is that of a streamed list.
type progress struct{ objects, quiet int }

// look returns how many times in a row few objects have come since it was called before.
func (p *progress) look() int {
	p.quiet++
	if p.objects >= fewObjects {
		p.quiet = 0
	}
	p.objects = 0
	return p.quiet
}

// quiet is called while the initial list is not complete. It reports whether the stream goes on.
func (s *stream) quiet(ctx context.Context) bool {
	switch quiet := s.progress.look(); {
	case quiet >= giveUpAfter:
		s.health.listPlainly(ctx)
		return false
	case quiet > 0:
		s.health.failed(ctx, "watch", errNoBookmark)
	}
	return true
}

// listPlainly ends the use of streamed lists.
func (h *health) listPlainly(ctx context.Context) {
	h.plain.Store(true)
	h.log.LogAttrs(ctx, slog.LevelWarn, "API server does not complete the streamed list; requesting plain lists from now on")
}

// begin begins a streamed list. It does not wait for ever for the first byte of a response.
func (h *health) begin(ctx context.Context, r *resource, o metav1.ListOptions) (watch.Interface, error) {
	ctx, attempts := withAttempts(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(giveUpAfter*h.quiet, func() {
		if attempts.last(nil) == nil {
			cancel(errSilent)
		}
	})
	out, err := h.watch(ctx, r, o)
	timer.Stop()
	if err != nil {
		if errors.Is(context.Cause(ctx), errSilent) {
			h.listPlainly(ctx)
		}
		cancel(nil)
		return nil, err
	}
	return begun{out, cancel}, nil
}

// begun is a watch with a context of its own.
type begun struct {
	watch.Interface
	cancel context.CancelCauseFunc
}

func (b begun) Stop() {
	b.Interface.Stop()
	b.cancel(nil)
}
