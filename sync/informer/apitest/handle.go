package apitest

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// exchange is a request and its answer.
type exchange struct {
	target
	w     http.ResponseWriter
	r     *http.Request
	query url.Values
	codec codec
	watch bool
	fault Fault
}

func (s *Server) handle(w http.ResponseWriter, r *http.Request) {
	x := &exchange{target: parsePath(r.URL.Path), w: w, r: r, query: r.URL.Query(), codec: s.accepted(r)}
	x.watch, _ = strconv.ParseBool(x.query.Get("watch"))
	q := Request{
		Method: r.Method, Path: r.URL.Path, Query: x.query, Header: r.Header.Clone(), Proto: r.Proto,
		Resource: x.resource, Watch: x.watch, Time: time.Now(),
	}
	s.mu.Lock()
	st := s.stores[x.resource]
	if st == nil {
		q.Resource = ""
	}
	s.requests = append(s.requests, q)
	away := s.away
	var stalled chan struct{}
	if st != nil {
		stalled = st.stalled
	}
	s.mu.Unlock()

	switch away {
	case Unavailable:
		x.refuse(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "apiserver is shutting down")
		return
	case HangingUp, Refusing:
		panic(http.ErrAbortHandler)
	case Up, Frozen:
	}
	if stalled != nil {
		select {
		case <-stalled:
		case <-r.Context().Done():
			return
		}
	}
	if s.authenticated(x) && s.authorized(x) && s.willing(x, st) {
		s.answer(x, st)
	}
}

// willing reports whether st answers, rather than refuses or responds with nonsense.
func (s *Server) willing(x *exchange, st *store) bool {
	if st == nil {
		return true
	}
	s.mu.Lock()
	status := st.refuse
	x.fault = st.fault
	s.mu.Unlock()
	switch status {
	case 0:
		return !x.nonsense()
	case http.StatusForbidden:
		x.refuse(status, metav1.StatusReasonForbidden, string(x.resource)+" is forbidden: no permission")
	case http.StatusUnauthorized:
		x.refuse(status, metav1.StatusReasonUnauthorized, "Unauthorized")
	case http.StatusNotFound:
		x.notFound()
	case http.StatusTooManyRequests:
		x.w.Header().Set("Retry-After", "1")
		x.refuse(status, metav1.StatusReasonTooManyRequests, "too many requests, please try again later")
	default:
		x.refuse(status, metav1.StatusReasonInternalError, "refused")
	}
	return false
}

func (s *Server) answer(x *exchange, st *store) {
	_, known := x.kind()
	switch {
	case x.r.URL.Path == "/version":
		x.write(http.StatusOK, runtime.ContentTypeJSON, []byte(`{"gitVersion":"v1.37.0"}`))
	case !known:
		x.notFound()
	case x.resource == events:
		s.event(x)
	case x.r.Method != http.MethodGet:
		x.refuse(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "only reading is supported")
	case x.name != "":
		s.get(x, st)
	default:
		sel, err := s.selector(x)
		switch {
		case err != nil:
			x.refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		case x.watch:
			s.watch(x, st, sel)
		default:
			s.list(x, st, sel)
		}
	}
}

func (s *Server) selector(x *exchange) (selector, error) {
	sel := selector{namespace: x.namespace}
	var err error
	if sel.labels, err = labels.Parse(x.query.Get("labelSelector")); err != nil {
		return sel, err
	}
	if sel.fields, err = fields.ParseSelector(x.query.Get("fieldSelector")); err != nil {
		return sel, err
	}
	for _, r := range sel.fields.Requirements() {
		switch {
		case r.Field == "metadata.name" || r.Field == "metadata.namespace":
		case x.resource == Services && !s.opts.NoClusterIPSelector && (r.Field == "spec.clusterIP" || r.Field == "spec.type"):
		default:
			return sel, fmt.Errorf("field label not supported: %s", r.Field)
		}
	}
	return sel, nil
}

func (s *Server) get(x *exchange, st *store) {
	key := x.name
	if x.namespace != "" {
		key = x.namespace + "/" + x.name
	}
	s.mu.Lock()
	e := st.objects[key]
	s.mu.Unlock()
	if e == nil {
		x.refuse(http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("%s %q not found", x.resource, x.name))
		return
	}
	x.write(http.StatusOK, x.codec.info().MediaType, e.encoded[x.codec]())
}

func (s *Server) list(x *exchange, st *store, sel selector) {
	from, err := parseRV(x.query.Get("resourceVersion"))
	if err != nil {
		x.refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	s.mu.Lock()
	rv := s.rv
	if from > rv {
		s.mu.Unlock()
		x.tooLarge()
		return
	}
	entries := st.list(sel)
	s.mu.Unlock()

	objects := make([]runtime.Object, 0, len(entries))
	for _, e := range entries {
		objects = append(objects, e.object)
	}
	kind, _ := x.kind()
	kind.Kind += "List"
	list := newObject(kind)
	must(meta.SetList(list, objects))
	list.(metav1.ListInterface).SetResourceVersion(formatRV(rv))
	x.object(http.StatusOK, list)
}

func (x *exchange) object(status int, obj runtime.Object) {
	x.write(status, x.codec.info().MediaType, x.codec.encode(obj))
}

func (x *exchange) write(status int, mediaType string, body []byte) {
	x.w.Header().Set("Content-Type", mediaType)
	x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	x.w.WriteHeader(status)
	x.send(body)
}

func (x *exchange) refuse(code int, reason metav1.StatusReason, message string) {
	x.object(code, failure(code, reason, message))
}

func (x *exchange) notFound() {
	x.refuse(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
}

// tooLarge refuses a request for a resource version in the future.
func (x *exchange) tooLarge() {
	status := failure(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "Too large resource version")
	status.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{
		Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
	}}, RetryAfterSeconds: 1}
	x.object(http.StatusGatewayTimeout, status)
}

func failure(code int, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	}
}

// watchTimeout is how long a watch lasts whose client asks for no limit.
const watchTimeout = time.Hour

func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("apitest: %v", err))
	}
}
