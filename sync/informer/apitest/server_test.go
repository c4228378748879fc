package apitest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func service(name string, labels map[string]string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns1", Name: name, Labels: labels}}
}

func start(t *testing.T, o Options) *Server {
	t.Helper()
	s, err := NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func get(t *testing.T, s *Server, path string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// list returns the names.
func list(t *testing.T, s *Server, path string) string {
	t.Helper()
	resp := get(t, s, path)
	var l corev1.ServiceList
	if err := json.NewDecoder(resp.Body).Decode(&l); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, i := range l.Items {
		names = append(names, i.Name)
	}
	return strings.Join(names, " ")
}

func TestPaths(t *testing.T) {
	s := start(t, Options{NoClusterIPSelector: true})
	s.Set(service("a", map[string]string{"x": "y"}))
	s.Set(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns2", Name: "b"}})
	s.Set(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}})
	for path, want := range map[string]int{
		"/version":                          200,
		"/api/v1/namespaces/ns1/services/a": 405,
		"/api/v1/secrets":                   404,
		"/":                                 404,
		"/apis/discovery.k8s.io/v1/endpointslices":              200,
		"/apis/networking.k8s.io/v1/servicecidrs":               200,
		"/api/v1/services?fieldSelector=spec.clusterIP!%3DNone": 400,
		"/api/v1/services?labelSelector=%21%21":                 400,
	} {
		if got := get(t, s, path).StatusCode; got != want {
			t.Errorf("%s: want %d, got %d", path, want, got)
		}
	}
	for path, want := range map[string]string{
		"/api/v1/services":                                 "a b",
		"/api/v1/namespaces/ns2/services":                  "b",
		"/api/v1/services?labelSelector=%21x":              "b",
		"/api/v1/services?fieldSelector=metadata.name%3Da": "a",
	} {
		if got := list(t, s, path); got != want {
			t.Errorf("%s: want %q, got %q", path, want, got)
		}
	}
}

func TestWatch(t *testing.T) {
	s := start(t, Options{})
	s.Set(service("a", nil))
	s.Set(service("hidden", map[string]string{"x": ""}))
	resp := get(t, s, "/api/v1/services?watch=1&labelSelector=%21x&sendInitialEvents=true&allowWatchBookmarks=true")
	in := bufio.NewScanner(resp.Body)
	next := func() string {
		t.Helper()
		if !in.Scan() {
			return "end"
		}
		var e struct {
			Type   string
			Object corev1.Service
		}
		if err := json.Unmarshal(in.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(fmt.Sprint(e.Type, " ", e.Object.Name, " ", e.Object.ResourceVersion, " ", e.Object.Annotations[metav1.InitialEventsAnnotationKey]))
	}
	var got []string
	for range 2 {
		got = append(got, next())
	}
	s.Set(service("hidden", map[string]string{"x": "2"}))
	s.Set(service("hidden", nil))
	s.Set(service("a", nil))
	s.Set(service("a", map[string]string{"x": ""}))
	s.Delete(service("a", nil))
	s.Delete(service("hidden", nil))
	s.Bookmark()
	for range 5 {
		got = append(got, next())
	}
	s.DropWatches()
	got = append(got, next())
	want := []string{
		"ADDED a 1001", "BOOKMARK  1002 true",
		"ADDED hidden 1004", "MODIFIED a 1005", "DELETED a 1006", "DELETED hidden 1008", "BOOKMARK  1009",
		"end",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
