package informer

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// works is how long a watch without events must last to be a success, as for client-go.
	works = time.Second
	// giveUpAfter is how many times as long as slow it takes until plain lists are requested in place of streamed ones.
	giveUpAfter = 3
	// fewObjects is less than a list has in the time slow: a busy cluster has as many new objects.
	fewObjects = 100
)

var (
	errCut        = errors.New("watch ended before the initial list was complete")
	errShort      = errors.New("watch ends at once")
	errDisorder   = errors.New("watch events out of order; listing again")
	errNoBookmark = errors.New("the API server has sent no bookmark, which ends the initial list")
)

// stream is a watch that checks its events, and ends with an error if they make no sense. client-go would let an older
// version of an object replace a newer one, and repeat a streamed list that was cut off.
type stream struct {
	watch.Interface // the server's
	f               *follower
	cancel          context.CancelFunc
	out             chan watch.Event

	initial    bool        // objects come in any order, until the bookmark that ends them
	objects    int         // initial ones
	warn, plan *time.Timer // of the initial list, see guard
	newest     uint64      // resource version of an event
	proven     bool        // an event came, or none for the time works
}

func (s *stream) ResultChan() <-chan watch.Event { return s.out }

// Stop implements [watch.Interface].
func (s *stream) Stop() {
	s.cancel()
	s.Interface.Stop()
}

func (s *stream) run(ctx context.Context) {
	defer close(s.out)
	lasted := time.NewTimer(works)
	defer lasted.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-lasted.C:
			if !s.initial {
				s.works()
			}
		case e, ok := <-s.Interface.ResultChan():
			if !ok {
				s.end(ctx)
				return
			}
			e = s.check(ctx, e)
			if broken(e) {
				s.end(ctx)
				return
			}
			if !s.send(ctx, e) || e.Type == watch.Error {
				return
			}
		}
	}
}

func (s *stream) send(ctx context.Context, e watch.Event) bool {
	select {
	case s.out <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *stream) works() {
	s.proven = true
	s.f.short.Store(false)
	s.f.works()
}

// end is called when the server's watch has ended.
func (s *stream) end(ctx context.Context) {
	s.f.cut.Store(true)
	switch {
	case s.initial:
		s.f.failed(ctx, "watch", errCut)
		// After this error client-go requests a plain list.
		s.send(ctx, errorEvent(http.StatusInternalServerError, metav1.StatusReasonInternalError, errCut))
	case !s.proven && s.f.short.Swap(true): // a server that shuts down does it once
		s.f.failed(ctx, "watch", errShort)
	}
}

// check returns the event to pass on: an error if the server's event is wrong.
func (s *stream) check(ctx context.Context, e watch.Event) watch.Event {
	m, ok := e.Object.(metav1.Object)
	if e.Type == watch.Error || !ok {
		if !s.initial { // else it can't stream the list, as with an old etcd; client-go requests a plain one
			s.f.failed(ctx, "watch", apierrors.FromObject(e.Object))
		}
		return e
	}
	version, known := parseVersion(m.GetResourceVersion())
	switch {
	case s.initial && (e.Type != watch.Bookmark || m.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true"):
		if s.objects++; s.objects%fewObjects == 0 {
			s.warn.Reset(s.f.quiet)
			s.plan.Reset(giveUpAfter * s.f.quiet)
		}
		return e
	case s.initial:
		s.initial = false
		s.warn.Stop()
		s.plan.Stop()
		s.f.store.complete()
	case known && version < s.newest:
		// The event alone does not show which changes were missed.
		s.f.failed(ctx, "watch", errDisorder)
		return errorEvent(http.StatusGone, metav1.StatusReasonExpired, errDisorder)
	}
	s.newest = max(s.newest, version)
	s.works()
	return e
}

// guard ends a streamed list that makes no progress. An API server may accept the request for one, and send no bookmark
// at the end. client-go waits until the watch ends, for five to ten minutes.
func (s *stream) guard(ctx context.Context, last func() error) {
	s.warn = time.AfterFunc(s.f.quiet, func() { s.f.failed(ctx, "watch", cmp.Or(last(), errNoBookmark)) })
	s.plan = time.AfterFunc(giveUpAfter*s.f.quiet, func() {
		if ctx.Err() == nil {
			s.f.unstreamed.Store(true)
			s.f.log.LogAttrs(ctx, slog.LevelWarn,
				"API server does not complete the streamed list; requesting plain lists from now on")
			s.cancel()
		}
	})
	context.AfterFunc(ctx, func() {
		s.warn.Stop()
		s.plan.Stop()
	})
}

// broken reports whether an event could not be decoded, as at the end of most connections that break. client-go would
// list everything again.
func broken(e watch.Event) bool {
	return e.Type == watch.Error && apierrors.HasStatusCause(apierrors.FromObject(e.Object), undecodable)
}

func errorEvent(code int32, reason metav1.StatusReason, err error) watch.Event {
	return watch.Event{Type: watch.Error, Object: &metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: err.Error(),
	}}
}

// parseVersion returns a resource version as a number. Versions of all our kinds are numbers that grow (KEP-5504).
func parseVersion(s string) (uint64, bool) {
	v, err := strconv.ParseUint(s, 10, 64)
	return v, err == nil
}
