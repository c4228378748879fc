package apitest

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
)

// Request is a request that the server got.
type Request struct {
	*http.Request
	Access
	Denied bool      // by the rules
	Time   time.Time // of arrival
}

// exchange is a request and its answer.
type exchange struct {
	Request
	w         http.ResponseWriter
	query     url.Values
	namespace string // empty: all
	labels    labels.Selector
	fields    fields.Selector
	from      uint64 // resource version, or 0
	format    runtime.SerializerInfo
	fault     Fault
}

// paths are those of objects, and all others, which name none.
func (s *Server) paths() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", s.handle)
	for _, group := range []string{"/api/{version}", "/apis/{group}/{version}"} {
		for _, namespace := range []string{"", "/namespaces/{namespace}"} {
			mux.HandleFunc(group+namespace+"/{resource}", s.handle)
			mux.HandleFunc(group+namespace+"/{resource}/{name}", s.handle)
		}
	}
	return mux
}

func (s *Server) handle(w http.ResponseWriter, r *http.Request) {
	x := &exchange{Request: Request{Request: r, Time: time.Now()}, w: w, query: r.URL.Query()}
	x.namespace, x.format = r.PathValue("namespace"), serializer(runtime.ContentTypeJSON)
	if !s.opts.JSONOnly && strings.HasPrefix(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		x.format = serializer(runtime.ContentTypeProtobuf)
	}
	invalid := x.parse()
	x.Access = x.access()
	s.mu.Lock()
	x.Denied = !x.permitted(s.opts.Rules)
	s.requests = append(s.requests, x.Request)
	away := s.away
	s.mu.Unlock()
	if away == Unavailable {
		x.refuse(apierrors.NewServiceUnavailable("apiserver is shutting down"))
		return
	}
	s.waitForFault(x)
	if s.willing(x) {
		s.answer(x, invalid)
	}
}

// willing reports whether there will be an answer, or else refuses or responds with nonsense.
func (s *Server) willing(x *exchange) bool {
	spoiled, nonsensical := nonsense[x.fault]
	switch {
	case x.fault == Silent: // the client is gone
	case s.opts.Secure && x.Header.Get("Authorization") != "Bearer "+s.token, x.fault == http.StatusUnauthorized:
		x.refuse(apierrors.NewUnauthorized("Unauthorized"))
	case x.Denied:
		x.refuse(apierrors.NewForbidden(x.of(), x.Name, fmt.Errorf( //nolint:staticcheck // as the real server says it
			`User "system:kube-proxy" cannot %s resource %q in API group %q`, x.Verb, x.Resource, x.Group)))
	case x.fault >= http.StatusBadRequest:
		x.refuse(failure(int(x.fault), string(x.Resource)+" is forbidden: no permission"))
	case nonsensical:
		x.write(http.StatusOK, spoiled.mediaType, []byte(spoiled.body))
	default:
		return true
	}
	return false
}

func (s *Server) answer(x *exchange, invalid error) {
	kind := kinds[x.Resource]
	known := kind.Group == x.Group && kind.Version == x.PathValue("version")
	switch {
	case x.URL.Path == "/version":
		x.write(http.StatusOK, runtime.ContentTypeJSON, []byte(`{"gitVersion":"v1.37.0"}`))
	case x.Resource == "" || !known:
		x.refuse(failure(http.StatusNotFound, ""))
	case x.Resource == events && (x.Verb == "create" || x.Verb == "patch"):
		s.change(x)
	case x.Verb != "list" && x.Verb != "watch":
		x.refuse(apierrors.NewMethodNotSupported(x.of(), x.Verb))
	case invalid != nil:
		x.refuse(apierrors.NewBadRequest(invalid.Error()))
	case s.opts.NoClusterIPSelector && strings.Contains(x.fields.String(), "spec."):
		x.refuse(apierrors.NewBadRequest("field label not supported"))
	case x.Verb == "watch":
		s.watch(x)
	default:
		s.list(x)
	}
}

// parse reads the query.
func (x *exchange) parse() error {
	var errs [3]error
	x.labels, errs[0] = labels.Parse(x.query.Get("labelSelector"))
	x.fields, errs[1] = fields.ParseSelector(x.query.Get("fieldSelector"))
	if errs[1] != nil {
		x.fields = fields.Everything()
	}
	x.from, errs[2] = strconv.ParseUint(cmp.Or(x.query.Get("resourceVersion"), "0"), 10, 64)
	return errors.Join(errs[:]...)
}

func (x *exchange) flag(name string) bool {
	set, _ := strconv.ParseBool(x.query.Get(name))
	return set
}

// selects reports whether the client asks for an entry, if there is one.
func (x *exchange) selects(e *entry) bool {
	return e != nil && e.key.resource == x.Resource && (x.namespace == "" || x.namespace == e.key.namespace) &&
		x.labels.Matches(labels.Set(e.GetLabels())) && x.fields.Matches(e.fields)
}

func (s *Server) list(x *exchange) {
	s.mu.Lock()
	rv := s.rv
	if x.query.Get("resourceVersion") != "" {
		rv = s.cached()
	}
	stored := s.at(rv)
	s.mu.Unlock()
	if x.from > rv {
		x.refuse(tooLarge(x.from, rv))
		return
	}
	var objects []runtime.Object
	for e := range of(stored, x.Resource) {
		if x.selects(e) {
			objects = append(objects, e.object)
		}
	}
	kind := kinds[x.Resource]
	kind.Kind += "List"
	list := newObject(kind)
	must(meta.SetList(list, objects))
	list.(metav1.ListInterface).SetResourceVersion(formatRV(rv))
	x.object(http.StatusOK, list)
}

// change creates or patches an object.
func (s *Server) change(x *exchange) {
	body, err := io.ReadAll(http.MaxBytesReader(x.w, x.Body, 3<<20)) // as the real server
	s.mu.Lock()
	old, _ := s.objects.Get(&entry{key: key{x.Resource, x.namespace, x.Name}})
	status := http.StatusCreated
	if x.Verb == "patch" && err == nil && old != nil {
		status = http.StatusOK
		before := encode(serializer(runtime.ContentTypeJSON), old.object)
		body, err = strategicpatch.StrategicMergePatch(before, body, old.object)
	}
	obj, decodeErr := runtime.Decode(scheme.Codecs.UniversalDeserializer(), body)
	var now *entry
	if err = cmp.Or(err, decodeErr); err == nil && (old != nil || x.Verb == "create") {
		now = s.set(obj)
	}
	s.mu.Unlock()
	switch {
	case now != nil:
		x.object(status, now.object)
	case old == nil && x.Verb == "patch":
		x.refuse(apierrors.NewNotFound(x.of(), x.Name))
	default:
		x.refuse(apierrors.NewBadRequest(err.Error()))
	}
}

// of is the resource that errors name.
func (x *exchange) of() schema.GroupResource {
	return schema.GroupResource{Group: x.Group, Resource: string(x.Resource)}
}

func (x *exchange) object(status int, obj runtime.Object) {
	x.write(status, x.format.MediaType, encode(x.format, obj))
}

func (x *exchange) write(status int, mediaType string, body []byte) {
	x.w.Header().Set("Content-Type", mediaType)
	x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	x.w.WriteHeader(status)
	_, _ = x.Write(body) // else the client is gone
}

func (x *exchange) refuse(err *apierrors.StatusError) {
	if d := err.ErrStatus.Details; d != nil && d.RetryAfterSeconds > 0 {
		x.w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	x.object(int(err.ErrStatus.Code), statusOf(err))
}

func statusOf(err *apierrors.StatusError) *metav1.Status {
	err.ErrStatus.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	return &err.ErrStatus
}

func failure(status int, message string) *apierrors.StatusError {
	after := 0
	if status == http.StatusTooManyRequests {
		after = 1
	}
	return apierrors.NewGenericServerResponse(status, "", schema.GroupResource{}, "", message, after, false)
}

// tooLarge refuses a request for a resource version in the future, in the words of k8s.io/apiserver's storage.
func tooLarge(wanted, has uint64) *apierrors.StatusError {
	const message = "Too large resource version"
	err := apierrors.NewTimeoutError(fmt.Sprintf("%s: %d, current: %d", message, wanted, has), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: message}}
	return err
}

// serializer is that of a format.
func serializer(mediaType string) runtime.SerializerInfo {
	all := scheme.Codecs.SupportedMediaTypes()
	return all[slices.IndexFunc(all, func(i runtime.SerializerInfo) bool { return i.MediaType == mediaType })]
}

func encode(format runtime.SerializerInfo, obj runtime.Object) []byte {
	b, err := runtime.Encode(format.Serializer, obj)
	must(err)
	return b
}

func newObject(kind schema.GroupVersionKind) runtime.Object {
	obj, err := scheme.Scheme.New(kind)
	must(err)
	obj.GetObjectKind().SetGroupVersionKind(kind)
	return obj
}
