package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record/util"
)

const (
	requestTimeout = 10 * time.Second
	// complainInterval is the least time between two log messages about events that can't be written.
	complainInterval = 10 * time.Minute
	// maxInstance is the API server's limit for the name of who reports, in bytes.
	maxInstance = 128
	// maxOthers bounds the memory for shared events: client-go's is bounded so, too.
	maxOthers = 4096
	// renewal is an annotation, within the process, of an event about a problem that lasts.
	renewal = "renewal"
)

// sink writes the events of client-go's recorder as events.k8s.io/v1. Only the recorder's one goroutine calls it.
type sink struct {
	opts     Options
	complain rate.Sometimes
	others   map[string]bool // the shared events that other nodes created, by name
}

func newSink(o Options) *sink {
	return &sink{
		opts: o, complain: rate.Sometimes{First: 1, Interval: complainInterval},
		others: make(map[string]bool),
	}
}

// Create implements record.EventSink. If the event exists, an earlier try succeeded after all, or another node was
// quicker.
func (s *sink) Create(e *corev1.Event) (*corev1.Event, error) {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	event := s.convert(e)
	err := s.opts.Client.CreateEvent(ctx, event)
	if err == nil {
		delete(s.others, event.Name)
	} else if apierrors.IsAlreadyExists(err) {
		err = nil
	}
	return s.written(e, event.Name, err)
}

// Patch implements record.EventSink: an event happened again, or is to be renewed. By the server's answer, a node
// learns which shared events it has created, also before it was restarted.
func (s *sink) Patch(e *corev1.Event, _ []byte) (*corev1.Event, error) {
	fields := map[string]any{"series": series(e)}
	if shared(e.Reason) {
		_, renews := e.Annotations[renewal]
		switch {
		case s.others[e.Name] && renews:
			return e, nil
		case s.others[e.Name]:
			return s.Create(e) // it may be gone
		}
		fields["reportingInstance"] = s.instance()
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	patch, _ := json.Marshal(fields) // it can't fail with these types
	err := s.opts.Client.PatchEvent(ctx, e.Namespace, e.Name, patch)
	if shared(e.Reason) && apierrors.IsInvalid(err) {
		if len(s.others) >= maxOthers {
			clear(s.others)
		}
		s.others[e.Name], err = true, nil
	}
	return s.written(e, e.Name, err)
}

func (s *sink) instance() string { return cut(Controller+"-"+s.opts.NodeName, maxInstance) }

// Update implements record.EventSink. The recorder does not call it.
func (s *sink) Update(e *corev1.Event) (*corev1.Event, error) { return s.Create(e) }

// written returns what the recorder takes for the server's answer. It gives up for an error of the server: those that
// may pass lose their type.
func (s *sink) written(e *corev1.Event, name string, err error) (*corev1.Event, error) {
	event := *e
	event.Name = name
	if err == nil || apierrors.IsNotFound(err) && e.Count > 1 {
		return &event, err // what is gone is created again
	}
	s.complain.Do(func() {
		regarding := e.InvolvedObject.Kind + " " + e.InvolvedObject.Name
		s.opts.Log.Warn("cannot write an event; further failures are not logged for a while",
			slog.String("reason", e.Reason), slog.String("regarding", regarding), slog.Any("err", err))
	})
	if passing(err) {
		err = fmt.Errorf("try again: %w", err)
	}
	return &event, err
}

// passing reports whether the same request may succeed later: the server is away or overloaded.
func passing(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err)
}

// convert returns the event for the server.
func (s *sink) convert(e *corev1.Event) *eventsv1.Event {
	out := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name},
		EventTime:           metav1.NewMicroTime(e.FirstTimestamp.Time),
		Series:              series(e),
		ReportingController: Controller,
		ReportingInstance:   s.instance(),
		Action:              action(e.Reason),
		Reason:              e.Reason,
		Regarding:           e.InvolvedObject,
		Note:                cut(e.Message, maxNote),
		Type:                e.Type,
	}
	if shared(e.Reason) {
		out.Name = util.GenerateEventName(e.InvolvedObject.Name, hash(e))
	}
	return out
}

// series returns how often an event happened, if that is more than once.
func series(e *corev1.Event) *eventsv1.EventSeries {
	if e.Count <= 1 {
		return nil
	}
	return &eventsv1.EventSeries{Count: e.Count, LastObservedTime: metav1.NewMicroTime(e.LastTimestamp.Time)}
}

// hash returns the same number on each node for the same event.
func hash(e *corev1.Event) int64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%q", []string{string(e.InvolvedObject.UID), e.Type, e.Reason, e.Message})
	return int64(h.Sum64() >> 1) // positive: a name has no sign
}
