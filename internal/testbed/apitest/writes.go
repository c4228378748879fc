package apitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
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

// event creates, replaces or patches an event.
func (s *Server) event(x *exchange) {
	if x.namespace == "" {
		x.refuse(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "events are written in a namespace")
		return
	}
	s.mu.Lock()
	i := slices.IndexFunc(s.events, func(e *eventsv1.Event) bool { return e.Namespace == x.namespace && e.Name == x.name })
	var old *eventsv1.Event
	if i >= 0 {
		old = s.events[i]
	}
	s.mu.Unlock()

	e := new(eventsv1.Event)
	switch {
	case x.r.Method == http.MethodPost && x.name == "":
		if !x.body(e) {
			return
		}
		s.save(e, x.namespace)
		x.object(http.StatusCreated, e)
		return
	case x.r.Method != http.MethodPut && x.r.Method != http.MethodPatch:
		x.refuse(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "events are only written here")
		return
	case old == nil:
		x.refuse(http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("events.events.k8s.io %q not found", x.name))
		return
	case x.r.Method == http.MethodPut:
		if !x.body(e) {
			return
		}
	default:
		if err := x.patch(old, e); err != nil {
			x.refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
			return
		}
	}
	s.save(e, x.namespace)
	x.object(http.StatusOK, e)
}

// save gives e a version and puts it in the place of the one of its name. The caller
// must not change it any more.
func (s *Server) save(e *eventsv1.Event, namespace string) {
	e.SetGroupVersionKind(eventsv1.SchemeGroupVersion.WithKind("Event"))
	e.Namespace = namespace
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv++
	e.ResourceVersion = formatRV(s.rv)
	if e.Name == "" {
		e.Name = e.GenerateName + e.ResourceVersion
	}
	i := slices.IndexFunc(s.events, func(o *eventsv1.Event) bool { return o.Namespace == e.Namespace && o.Name == e.Name })
	if i >= 0 {
		s.events[i] = e
	} else {
		s.events = append(s.events, e)
	}
}

func (x *exchange) patch(old, now *eventsv1.Event) error {
	patch, err := readAll(x.r)
	if err != nil {
		return err
	}
	before, err := json.Marshal(old)
	if err != nil {
		return err
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, old)
	if err != nil {
		return err
	}
	return json.Unmarshal(after, now)
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
	review.Status.User, review.Status.Authenticated = s.users[review.Spec.Token], false
	if _, ok := s.users[review.Spec.Token]; ok {
		review.Status.Authenticated = true
		review.Status.Audiences = review.Spec.Audiences
	}
	s.mu.Unlock()
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
