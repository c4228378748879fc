package events

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// Retries of a Recorder. The first two are client-go's.
const (
	maxTries       = 12
	retryInterval  = 10 * time.Second // and up to a quarter more, so that nodes don't retry together
	requestTimeout = 10 * time.Second
	// flushTimeout bounds the time for remaining events at the end of the daemon.
	flushTimeout = 3 * time.Second
	// complainInterval is the least time between two log messages about lost events.
	complainInterval = 10 * time.Minute
)

// Run writes events until ctx ends. Then it tries once to write each remaining event, for 3
// seconds at most, and returns. Later events are dropped.
func (r *Recorder) Run(ctx context.Context) {
	// Failed requests are logged here; client-go would log them again.
	ctx = klog.NewContext(ctx, logr.Discard())
	left := r.deliverAll(ctx)
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	r.flush(ctx, left)
}

// deliverAll writes events until ctx ends. It returns the event that was interrupted, if any.
func (r *Recorder) deliverAll(ctx context.Context) *series {
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-r.queue:
			if err := r.deliver(ctx, s); ctx.Err() != nil && err != nil {
				return s
			} else if err != nil {
				r.lose(s, err)
			}
		}
	}
}

// deliver writes one event, and retries while the error may pass and ctx lasts.
func (r *Recorder) deliver(ctx context.Context, s *series) error {
	if err := r.pace.Wait(ctx); err != nil {
		return err
	}
	for try := 1; ; try++ {
		err := r.write(ctx, s)
		if err == nil || try == maxTries || !passing(err) {
			return err
		}
		const jitter = 0.25
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait.Jitter(retryInterval, jitter)):
		}
	}
}

// flush writes first, and then the queue.
func (r *Recorder) flush(ctx context.Context, first *series) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	for s := first; ; s = nil {
		if s == nil {
			select {
			case s = <-r.queue:
			default:
				return
			}
		}
		err := r.pace.Wait(ctx)
		if err == nil {
			err = r.write(ctx, s)
		}
		if err != nil {
			r.lose(s, err)
		}
	}
}

// passing reports whether the same request may succeed later: the server is away or
// overloaded.
func passing(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err)
}

// lose drops an event. The next of its kind begins a new series.
func (r *Recorder) lose(s *series, err error) {
	r.dropped.Add(1)
	r.mu.Lock()
	if r.known[s.occurrence] == s {
		delete(r.known, s.occurrence)
	}
	r.mu.Unlock()
	r.complain.Do(func() {
		r.opts.Log.LogAttrs(context.Background(), slog.LevelWarn, "dropped an event; not logging others for a while",
			slog.String("reason", s.reason), slog.String("regarding", s.object.String()), slog.Any("err", err))
	})
}

// write updates the server's event to s.
func (r *Recorder) write(ctx context.Context, s *series) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if s.event == nil {
		var err error
		if s.event, err = r.newEvent(ctx, s); err != nil {
			return err
		}
	}
	r.mu.Lock()
	s.queued = false
	count, last := s.count, s.last
	r.mu.Unlock()
	if count == s.told {
		return nil // a retried write had this count already
	}
	s.event.Series = nil
	if count > 1 {
		s.event.Series = &eventsv1.EventSeries{Count: count, LastObservedTime: metav1.NewMicroTime(last)}
	}
	if s.told > 0 && !s.theirs {
		patch, _ := json.Marshal(struct { // it can't fail with these types
			Series *eventsv1.EventSeries `json:"series"`
		}{s.event.Series})
		err := r.opts.Client.PatchEvent(ctx, s.event.Namespace, s.event.Name, patch)
		if err == nil {
			s.told = count
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		// The server keeps events for an hour only.
	}
	err := r.opts.Client.CreateEvent(ctx, s.event)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	// If the event exists, an earlier try succeeded after all, or another node was quicker: that one renews it.
	s.theirs = s.shared && err != nil
	s.told = count
	return nil
}
