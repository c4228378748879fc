package apitest

import (
	"encoding/json"
	"net/http"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
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

// permit is a user's permission for a path.
type permit struct{ user, verb, path string }

// Know sets the user that TokenReviews return for a token. Other tokens are invalid.
func (s *Server) Know(token string, user authenticationv1.UserInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users[token] = user
}

// Permit lets SubjectAccessReviews say that a user may do something with a path that is
// no resource, like get with /metrics. All else is not allowed.
func (s *Server) Permit(user, verb, path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.permits[permit{user, verb, path}] = true
}

func (s *Server) tokenReview(x *exchange) {
	review := new(authenticationv1.TokenReview)
	if !x.body(review) {
		return
	}
	s.mu.Lock()
	user, known := s.users[review.Spec.Token]
	s.mu.Unlock()
	review.Status = authenticationv1.TokenReviewStatus{Authenticated: known, User: user}
	if known {
		review.Status.Audiences = review.Spec.Audiences
	}
	review.SetGroupVersionKind(authenticationv1.SchemeGroupVersion.WithKind("TokenReview"))
	x.object(http.StatusCreated, review)
}

func (s *Server) subjectAccessReview(x *exchange) {
	review := new(authorizationv1.SubjectAccessReview)
	if !x.body(review) {
		return
	}
	review.Status = authorizationv1.SubjectAccessReviewStatus{}
	if a := review.Spec.NonResourceAttributes; a != nil {
		s.mu.Lock()
		review.Status.Allowed = s.permits[permit{review.Spec.User, a.Verb, a.Path}]
		s.mu.Unlock()
	}
	review.SetGroupVersionKind(authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"))
	x.object(http.StatusCreated, review)
}
