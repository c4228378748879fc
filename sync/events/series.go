package events

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record/util"
)

// seriesWindow is the most time between two events of a series, as in client-go.
const seriesWindow = 6 * time.Minute

// Limits of the API server (validation of events.k8s.io/v1), in bytes.
const (
	maxNote     = 1024
	maxInstance = 128
)

const kindService = "Service"

// series is an event that happened once or several times.
type series struct {
	occurrence
	shared bool // by all nodes
	first  time.Time

	// Run's alone.
	event  *eventsv1.Event // nil until the first try to write it
	told   int32           // the count that the server has; 0: it has no event
	theirs bool            // another node made it

	// Guarded by the Recorder's mu.
	last   time.Time
	count  int32
	queued bool
}

// newEvent returns the event of a series, without the count. It fails if the UID of the object may
// be had later.
func (r *Recorder) newEvent(ctx context.Context, s *series) (*eventsv1.Event, error) {
	object := s.object
	ref := corev1.ObjectReference{
		APIVersion: "v1", Kind: object.Kind, Namespace: object.Namespace, Name: object.Name,
		UID: types.UID(object.NamespacedName.String()),
	}
	if object.Kind == kindService && r.opts.ServiceUID != nil {
		uid, err := r.opts.ServiceUID(ctx, object.NamespacedName)
		switch {
		case err != nil && passing(err):
			return nil, fmt.Errorf("read the UID of %v: %w", object, err)
		case err == nil && uid != "":
			ref.UID = uid
		}
	}
	suffix := s.first.UnixNano()
	if s.shared {
		suffix = s.hash(ref.UID)
	}
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cmp.Or(object.Namespace, metav1.NamespaceDefault), Name: util.GenerateEventName(object.Name, suffix),
		},
		EventTime:           metav1.NewMicroTime(s.first),
		ReportingController: Controller,
		ReportingInstance:   cut(Controller+"-"+r.opts.NodeName, maxInstance),
		Action:              s.action,
		Reason:              s.reason,
		Regarding:           ref,
		Note:                s.note,
		Type:                s.eventType,
	}, nil
}

// hash returns the same number on each node for the same occurrence.
func (o occurrence) hash(uid types.UID) int64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%q", []string{string(uid), o.eventType, o.reason, o.action, o.note})
	return int64(h.Sum64() >> 1) // positive: a name has no sign
}

// cut truncates s to n bytes, at the end of a character.
func cut(s string, n int) string {
	const dots = "…"
	if len(s) <= n {
		return s
	}
	n -= len(dots)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + dots
}
