package events

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/model/modeltest/testlog"
	"github.com/vmapd/vmapd/sync/kube/client"
)

// server is an API server that has events, and nothing else.
type server struct {
	mu       sync.Mutex
	requests []request
	events   map[string]map[string]any // by path
	answer   func(n int) int           // to the n-th request, counted from 0: a status, or 0 for the right one; nil: always 0
	away     bool                      // of the RoundTripper only
}

type request struct {
	Line string // method, path and content type
	Body map[string]any
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err) // of a request that was read whole before
	}
	var body map[string]any
	if err := json.Unmarshal(b, &body); err != nil {
		fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	n := len(s.requests)
	s.requests = append(s.requests, request{Line: r.Method + " " + r.URL.Path + " " + r.Header.Get("Content-Type"), Body: body})
	if s.answer != nil {
		if status := s.answer(n); status != 0 {
			fail(w, status, "")
			return
		}
	}
	switch r.Method {
	case http.MethodPost:
		name := body["metadata"].(map[string]any)["name"].(string)
		path := r.URL.Path + "/" + name
		if s.events[path] != nil {
			fail(w, http.StatusConflict, metav1.StatusReasonAlreadyExists)
			return
		}
		s.events[path] = maps.Clone(body)
		reply(w, http.StatusCreated, body)
	case http.MethodPatch:
		event := s.events[r.URL.Path]
		if event == nil {
			fail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
			return
		}
		if by := body["reportingInstance"]; by != nil && by != event["reportingInstance"] {
			fail(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid) // the field is immutable
			return
		}
		maps.Copy(event, body)
		reply(w, http.StatusOK, event)
	default:
		fail(w, http.StatusForbidden, metav1.StatusReasonForbidden) // no permission
	}
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		panic(err)
	}
}

func fail(w http.ResponseWriter, status int, reason metav1.StatusReason) {
	reply(w, status, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Reason: reason, Code: int32(status), Message: http.StatusText(status),
	})
}

// RoundTrip makes the server one without sockets, for bubbles of fake time.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	away := s.away
	s.mu.Unlock()
	if away {
		return nil, errors.New("connection refused")
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result(), nil
}

func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// seen returns the requests so far.
func (s *server) seen() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]request(nil), s.requests...)
}

// lines returns method, name of the object and count of each request so far.
func (s *server) lines() []string {
	var out []string
	for _, r := range s.seen() {
		method, path, _ := strings.Cut(r.Line, " ")
		line := method
		if method == http.MethodPost {
			line += " " + r.Body["regarding"].(map[string]any)["name"].(string) + ": " + r.Body["reason"].(string)
			if note, ok := r.Body["note"].(string); ok {
				line += " " + note
			}
		} else {
			path, _, _ = strings.Cut(path, " ")
			name, _, _ := strings.Cut(path[strings.LastIndex(path, "/")+1:], ".")
			line += " " + name
		}
		if series, ok := r.Body["series"].(map[string]any); ok {
			b, _ := json.Marshal(series["count"])
			line += " x" + string(b)
		}
		out = append(out, line)
	}
	return out
}

func newServer() *server { return &server{events: map[string]map[string]any{}} }

// client returns a client of s: without sockets if url is empty.
func (s *server) client(t *testing.T, url string) *client.Client {
	t.Helper()
	conf := &rest.Config{Host: url, QPS: -1, Transport: s}
	if url != "" {
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		conf.Transport = transport
	}
	conf.ContentType = runtime.ContentTypeJSON
	c, err := client.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// world is a recorder, its server and its log.
type world struct {
	*Recorder
	server *server
	log    *testlog.Log
}

// inMemory returns a world without sockets.
func inMemory(t *testing.T, with ...func(*Options)) *world {
	t.Helper()
	w := &world{server: newServer(), log: &testlog.Log{}}
	o := Options{
		Client: w.server.client(t, ""), NodeName: "node-1",
		Log: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, set := range with {
		set(&o)
	}
	w.Recorder = New(o)
	w.ServiceUID = func(model.NamespacedName) string { return "" }
	return w
}

// start runs the recorder; stop ends it and waits for it.
func (w *world) start(t *testing.T) (stop func()) {
	t.Helper()
	return testaid.Run(t, w.Run)
}
