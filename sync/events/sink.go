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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/record/util"

	"github.com/vmapd/vmapd/model"
)

const (
	requestTimeout = 10 * time.Second
	// complainInterval is the least time between two log messages about events that can't be written.
	complainInterval = 10 * time.Minute
	// maxInstance is the API server's limit for the name of who reports, in bytes.
	maxInstance = 128
	// maxMade bounds the memory for shared events: client-go's is bounded so, too.
	maxMade = 4096
	// reasonLast is of an event that is not written: the events before it have been.
	reasonLast = "Last"
)

// sink writes the events of client-go's recorder as events.k8s.io/v1. Only the recorder's one goroutine calls it.
type sink struct {
	opts     Options
	complain rate.Sometimes
	made     map[string]bool // the shared events that this process created, by name
	last     chan struct{}   // closed when reasonLast comes
}

var _ record.EventSink = (*sink)(nil)

func newSink(o Options) *sink {
	return &sink{
		opts: o, complain: rate.Sometimes{First: 1, Interval: complainInterval},
		made: make(map[string]bool), last: make(chan struct{}),
	}
}

// Create implements [record.EventSink]. If the event exists, an earlier try succeeded after all, or another node was
// quicker.
func (s *sink) Create(e *corev1.Event) (*corev1.Event, error) {
	if e.Reason == reasonLast {
		close(s.last)
		return e, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	event, err := s.convert(ctx, e)
	if err != nil {
		return s.written(e, e.Name, err)
	}
	err = s.opts.Client.CreateEvent(ctx, event)
	switch {
	case apierrors.IsAlreadyExists(err):
		err = nil
	case err == nil && shared(e.Reason):
		if len(s.made) >= maxMade {
			clear(s.made)
		}
		s.made[event.Name] = true
	}
	return s.written(e, event.Name, err)
}

// Patch implements [record.EventSink]: an event happened again. One that all nodes share is patched by the node that
// created it; another creates it if it is gone.
func (s *sink) Patch(e *corev1.Event, _ []byte) (*corev1.Event, error) {
	if shared(e.Reason) && !s.made[e.Name] {
		return s.Create(e)
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	patch, _ := json.Marshal(map[string]any{"series": series(e)}) // it can't fail with these types
	return s.written(e, e.Name, s.opts.Client.PatchEvent(ctx, e.Namespace, e.Name, patch))
}

// Update implements [record.EventSink]. The recorder does not call it.
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

// convert returns the event for the server. It fails if the UID of the object may be had later.
func (s *sink) convert(ctx context.Context, e *corev1.Event) (*eventsv1.Event, error) {
	object := e.InvolvedObject
	if object.Kind == kindService && s.opts.ServiceUID != nil {
		uid, err := s.opts.ServiceUID(ctx, model.NamespacedName{Namespace: object.Namespace, Name: object.Name})
		switch {
		case err != nil && passing(err):
			return nil, fmt.Errorf("read the UID of Service %s/%s: %w", object.Namespace, object.Name, err)
		case err == nil && uid != "":
			object.UID = uid
		}
	}
	out := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name},
		EventTime:           metav1.NewMicroTime(e.FirstTimestamp.Time),
		Series:              series(e),
		ReportingController: Controller,
		ReportingInstance:   cut(Controller+"-"+s.opts.NodeName, maxInstance),
		Action:              action(e.Reason),
		Reason:              e.Reason,
		Regarding:           object,
		Note:                cut(e.Message, maxNote),
		Type:                e.Type,
	}
	if shared(e.Reason) {
		out.Name = util.GenerateEventName(object.Name, hash(object.UID, e))
	}
	return out, nil
}

// series returns how often an event happened, if that is more than once.
func series(e *corev1.Event) *eventsv1.EventSeries {
	if e.Count <= 1 {
		return nil
	}
	return &eventsv1.EventSeries{Count: e.Count, LastObservedTime: metav1.NewMicroTime(e.LastTimestamp.Time)}
}

// hash returns the same number on each node for the same event.
func hash(uid types.UID, e *corev1.Event) int64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%q", []string{string(uid), e.Type, e.Reason, e.Message})
	return int64(h.Sum64() >> 1) // positive: a name has no sign
}
