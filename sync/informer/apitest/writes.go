package apitest

import (
	"encoding/json"
	"net/http"
	"slices"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
)

// Events returns the events (events.k8s.io/v1) that clients wrote, as they are now, in
// the order of their creation.
func (s *Server) Events() []eventsv1.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []eventsv1.Event
	for _, e := range s.events {
		out = append(out, *e.DeepCopy())
	}
	return out
}

// event creates or patches an event.
func (s *Server) event(x *exchange) {
	raw, err := readAll(x.r)
	var e *eventsv1.Event
	if err == nil {
		e, err = s.writeEvent(x, raw)
	}
	switch {
	case err != nil:
		x.refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
	case e == nil:
		x.notFound()
	case x.r.Method == http.MethodPost:
		x.object(http.StatusCreated, e)
	default:
		x.object(http.StatusOK, e)
	}
}

// writeEvent returns the event as it is now; nil: there is none.
func (s *Server) writeEvent(x *exchange, raw []byte) (*eventsv1.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv++
	e := new(eventsv1.Event)
	i := slices.IndexFunc(s.events, func(e *eventsv1.Event) bool { return e.Namespace == x.namespace && e.Name == x.name })
	switch {
	case x.r.Method == http.MethodPost:
		if err := runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), raw, e); err != nil {
			return nil, err
		}
		i, s.events = len(s.events), append(s.events, e)
		if e.Name == "" {
			e.Name = e.GenerateName + formatRV(s.rv)
		}
	case i < 0 || x.r.Method != http.MethodPatch:
		return nil, nil
	default:
		before, err := json.Marshal(s.events[i])
		if err == nil {
			before, err = strategicpatch.StrategicMergePatch(before, raw, e)
		}
		if err == nil {
			err = json.Unmarshal(before, e)
		}
		if err != nil {
			return nil, err
		}
	}
	e.SetGroupVersionKind(kinds[events])
	e.Namespace, e.ResourceVersion = x.namespace, formatRV(s.rv)
	s.events[i] = e // nobody changes it any more
	return e, nil
}
