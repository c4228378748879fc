package informer

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/vmapd/vmapd/model"
)

// works is how long a watch without events must last to be a success. client-go treats a
// shorter one as a failure.
const works = time.Second

// early is how much before the time that it was asked for a server may end a watch: it counts in
// whole seconds, and began earlier.
const early = 2 * time.Second

var (
	errCut      = errors.New("watch ended before the initial list was complete")
	errShort    = errors.New("watch ends at once")
	errDisorder = errors.New("watch events out of order; listing again")
	errHistory  = errors.New("API server does not know changes that it has sent before, as after a restore; listing again")
)

// stream is a watch that checks its events, and ends with an error if they make no sense.
// client-go would repeat a watch that was cut off without a pause, and let an older version
// of an object replace a newer one.
type stream struct {
	watch.Interface // the server's
	health          *health
	into            *store

	out     chan watch.Event
	stopped chan struct{}
	stop    func()
	ended   chan struct{} // the goroutine did

	until   time.Time // when the server ends the watch, if the client asked for that
	initial bool      // objects come in any order, until the bookmark that ends them
	newest  uint64    // resource version of an event
	doubt   *doubt    // not nil: the server's history may be another
	proven  bool      // an event came, or none for the time works

	progress progress
}

// newStream wraps a watch with the given options, which begins with initial events, or from a
// resource version. It must be stopped.
func newStream(ctx context.Context, h *health, into *store, w watch.Interface, o metav1.ListOptions, from uint64, d *doubt) *stream {
	s := &stream{
		Interface: w, health: h, into: into,
		out: make(chan watch.Event), stopped: make(chan struct{}), ended: make(chan struct{}),
		initial: o.SendInitialEvents != nil, newest: from, doubt: d,
	}
	if o.TimeoutSeconds != nil {
		s.until = time.Now().Add(time.Duration(*o.TimeoutSeconds) * time.Second)
	}
	h.cut.Store(false)
	s.stop = sync.OnceFunc(func() { close(s.stopped) })
	go s.run(ctx)
	return s
}

func (s *stream) ResultChan() <-chan watch.Event { return s.out }

// Stop implements [watch.Interface]. It waits for the goroutine.
func (s *stream) Stop() {
	s.stop()
	s.Interface.Stop()
	<-s.ended
}

func (s *stream) run(ctx context.Context) {
	defer close(s.ended)
	defer close(s.out)
	defer s.testify()
	lasted := time.NewTimer(works)
	defer lasted.Stop()
	var look <-chan time.Time
	if s.initial {
		ticker := time.NewTicker(s.health.quiet)
		defer ticker.Stop()
		look = ticker.C
	}
	for {
		select {
		case <-s.stopped:
			return
		case <-lasted.C:
			if !s.initial {
				s.works(ctx)
			}
		case <-look:
			if s.initial && !s.quiet(ctx) {
				s.send(errorEvent(http.StatusInternalServerError, metav1.StatusReasonInternalError, errNoBookmark))
				return
			}
		case e, ok := <-s.Interface.ResultChan():
			if !ok {
				s.end(ctx)
				return
			}
			read := s.into.later
			if s.initial {
				read = s.into.initial
				if e.Type == watch.Added {
					s.progress.objects++
				}
			}
			var problem error
			if e, problem = s.check(ctx, e); problem != nil {
				s.health.failed(ctx, "watch", problem)
			}
			if !s.send(read(e)) || e.Type == watch.Error {
				return
			}
		}
	}
}

func (s *stream) send(e watch.Event) bool {
	select {
	case s.out <- e:
		return true
	case <-s.stopped:
		return false
	}
}

func (s *stream) works(ctx context.Context) {
	s.proven = true
	s.health.recovered(ctx)
}

// end is called when the server's watch has ended.
func (s *stream) end(ctx context.Context) {
	s.health.cut.Store(time.Now().Before(s.until.Add(-early)))
	switch {
	case s.initial:
		s.health.failed(ctx, "watch", errCut)
		// After this error client-go requests a plain list.
		s.send(errorEvent(http.StatusInternalServerError, metav1.StatusReasonInternalError, errCut))
	case !s.proven:
		s.health.endedAtOnce(ctx)
	}
}

// check returns the event to pass on, and an error if the server's event is wrong.
func (s *stream) check(ctx context.Context, e watch.Event) (watch.Event, error) {
	if e.Type == watch.Error {
		return e, apierrors.FromObject(e.Object)
	}
	noteWord(ctx)
	m, ok := e.Object.(metav1.Object)
	if !ok {
		return e, nil // client-go ignores it
	}
	version, known := parseVersion(m.GetResourceVersion())
	switch {
	case s.initial:
		if e.Type != watch.Bookmark || m.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
			return e, nil
		}
		s.initial, s.newest = false, version
		s.health.took(ctx, m.GetResourceVersion())
	case known && version < s.newest:
		// The event alone does not show which changes were missed.
		return errorEvent(http.StatusGone, metav1.StatusReasonExpired, errDisorder), errDisorder
	case known:
		s.newest = version
	}
	if err := s.settle(e, model.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()}); err != nil {
		return errorEvent(http.StatusGone, metav1.StatusReasonExpired, err), err
	}
	s.health.heard.Store(time.Now().UnixNano())
	s.works(ctx)
	return e, nil
}

// testify notes the witness' object of the time when the watch ends: a later one may be of another history.
func (s *stream) testify() {
	if s.doubt == nil && !s.initial {
		s.health.before.Store(s.health.witness.seen())
	}
}

// settle compares an event with those that are expected again.
func (s *stream) settle(e watch.Event, name model.NamespacedName) error {
	if s.doubt == nil || s.initial {
		return nil
	}
	if e.Type != watch.Bookmark {
		delete(s.doubt.expected, name)
	}
	if s.newest < s.doubt.until {
		return nil
	}
	expected := len(s.doubt.expected)
	s.doubt = nil
	if expected > 0 {
		return errHistory
	}
	s.health.doubted.Store(false)
	return nil
}

func errorEvent(code int32, reason metav1.StatusReason, err error) watch.Event {
	var status runtime.Object = &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: err.Error()}
	return watch.Event{Type: watch.Error, Object: status}
}
