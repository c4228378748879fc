package apitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// groups are the paths of the resources, with the apiVersion and the kind of their
// lists.
var groups = map[string]struct{ version, kind string }{
	"/api/v1/services": {"v1", "ServiceList"},
	"/api/v1/nodes":    {"v1", "NodeList"},
	"/apis/discovery.k8s.io/v1/endpointslices": {"discovery.k8s.io/v1", "EndpointSliceList"},
	"/apis/networking.k8s.io/v1/servicecidrs":  {"networking.k8s.io/v1", "ServiceCIDRList"},
}

// target is what a path is about.
type target struct {
	resource      Resource
	version, kind string // of its list
	namespace     string
	name          string // of one object, or empty
}

// parsePath understands /api/v1[/namespaces/NS]/RESOURCE[/NAME].
func parsePath(path string) (target, bool) {
	var t target
	parts := strings.Split(strings.Trim(path, "/"), "/")
	root := 2 // api, v1
	if parts[0] == "apis" {
		root = 3 // apis, GROUP, v1
	}
	if len(parts) <= root {
		return t, false
	}
	base, rest := "/"+strings.Join(parts[:root], "/"), parts[root:]
	if rest[0] == "namespaces" && len(rest) > 2 {
		t.namespace, rest = rest[1], rest[2:]
	}
	if len(rest) > 2 {
		return t, false
	}
	if len(rest) == 2 {
		t.name = rest[1]
	}
	g, ok := groups[base+"/"+rest[0]]
	t.resource, t.version, t.kind = Resource(rest[0]), g.version, g.kind
	return t, ok
}

func (s *Server) handle(w http.ResponseWriter, r *http.Request) {
	t, known := parsePath(r.URL.Path)
	query := r.URL.Query()
	q := Request{Method: r.Method, Path: r.URL.Path, Query: query, Header: r.Header.Clone(), Resource: t.resource}
	q.Watch, _ = strconv.ParseBool(query.Get("watch"))

	s.mu.Lock()
	if !known {
		q.Resource = ""
	}
	s.requests = append(s.requests, q)
	away := s.away
	st := s.stores[q.Resource]
	var stalled chan struct{}
	if st != nil {
		stalled = st.stalled
	}
	s.mu.Unlock()

	switch away {
	case Unavailable:
		refuse(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "apiserver is shutting down")
		return
	case HangingUp, Refusing:
		panic(http.ErrAbortHandler)
	}
	if stalled != nil {
		select {
		case <-stalled:
		case <-r.Context().Done():
			return
		}
	}
	if st != nil {
		s.mu.Lock()
		status := st.refuse
		s.mu.Unlock()
		switch status {
		case 0:
		case http.StatusForbidden:
			refuse(w, status, metav1.StatusReasonForbidden, string(t.resource)+" is forbidden: no permission")
			return
		case http.StatusNotFound:
			known = false
		default:
			refuse(w, status, metav1.StatusReasonInternalError, "refused")
			return
		}
	}
	switch {
	case r.URL.Path == "/version":
		write(w, http.StatusOK, []byte(`{"major":"1","minor":"37","gitVersion":"v1.37.0"}`))
	case !known:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
	case r.Method != http.MethodGet:
		refuse(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "only reading is supported")
	case t.name != "":
		s.get(w, t)
	default:
		sel, err := s.selector(t, query.Get("labelSelector"), query.Get("fieldSelector"))
		switch {
		case err != nil:
			refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		case q.Watch:
			s.watch(w, r, t, sel)
		default:
			s.list(w, t, sel, q)
		}
	}
}

func (s *Server) selector(t target, label, field string) (selector, error) {
	sel := selector{namespace: t.namespace}
	var err error
	if sel.labels, err = labels.Parse(label); err != nil {
		return sel, err
	}
	if sel.fields, err = fields.ParseSelector(field); err != nil {
		return sel, err
	}
	for _, r := range sel.fields.Requirements() {
		switch {
		case r.Field == "metadata.name" || r.Field == "metadata.namespace":
		case t.resource == Services && !s.opts.NoClusterIPSelector && (r.Field == "spec.clusterIP" || r.Field == "spec.type"):
		default:
			return sel, fmt.Errorf("field label not supported: %s", r.Field)
		}
	}
	return sel, nil
}

func (s *Server) get(w http.ResponseWriter, t target) {
	key := t.name
	if t.namespace != "" {
		key = t.namespace + "/" + t.name
	}
	s.mu.Lock()
	e := s.stores[t.resource].objects[key]
	s.mu.Unlock()
	if e == nil {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("%s %q not found", t.resource, t.name))
		return
	}
	write(w, http.StatusOK, e.json)
}

func (s *Server) list(w http.ResponseWriter, t target, sel selector, q Request) {
	limit, _ := strconv.Atoi(q.Query.Get("limit"))
	if limit > 0 && s.opts.MaxPage > 0 {
		limit = min(limit, s.opts.MaxPage)
	}
	s.mu.Lock()
	rv := s.rv
	var entries []*entry
	if token := q.Query.Get("continue"); token != "" {
		// The rest of a list is as of its beginning, and each token good for once.
		rest, ok := s.pages[token]
		delete(s.pages, token)
		if !ok {
			s.mu.Unlock()
			refuse(w, http.StatusGone, metav1.StatusReasonExpired, "The provided continue parameter is too old")
			return
		}
		entries = rest
	} else {
		entries = s.stores[t.resource].list(sel)
	}
	var next string
	// A list "as of any version" is served from a cache, which knows no pages.
	if limit > 0 && len(entries) > limit && (q.Query.Get("resourceVersion") != "0" || s.opts.MaxPage > 0) {
		s.tokens++
		next = fmt.Sprintf("%s-%d-%d", t.resource, rv, s.tokens)
		s.pages[next] = entries[limit:]
		entries = entries[:limit]
	}
	s.mu.Unlock()

	items := make([]json.RawMessage, 0, len(entries))
	for _, e := range entries {
		items = append(items, e.json)
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": t.version,
		"kind":       t.kind,
		"metadata":   map[string]string{"resourceVersion": formatRV(rv), "continue": next},
		"items":      items,
	})
	if err != nil {
		panic(fmt.Sprintf("apitest: %v", err))
	}
	write(w, http.StatusOK, body)
}

func write(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A client that is gone needs no answer.
	_, _ = w.Write(body)
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	write(w, code, statusJSON(code, reason, message))
}

func statusJSON(code int, reason metav1.StatusReason, message string) []byte {
	body, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
	if err != nil {
		panic(fmt.Sprintf("apitest: %v", err))
	}
	return body
}

// watchTimeout is how long a watch lasts whose client asks for no limit.
const watchTimeout = time.Hour
