package health

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// response is what a client sees.
type response struct {
	Code   int
	Header http.Header
	Body   string
}

func asJSON(code int, body string) response {
	return response{code, http.Header{"Content-Type": {"application/json"}, "X-Content-Type-Options": {"nosniff"}}, body}
}

func asText(code int, body string) response {
	return response{code, http.Header{"Content-Type": {"text/plain; charset=utf-8"}, "X-Content-Type-Options": {"nosniff"}}, body}
}

func mustAnswer(t *testing.T, h http.Handler, path string, want response) {
	t.Helper()
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		if diff := cmp.Diff(want, response{w.Code, w.Header(), w.Body.String()}); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", method, path, diff)
		}
	}
}

// A bubble's time begins at midnight of the first of January 2000, UTC.
func TestHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := map[string]int{}
		story := newHistory(t, Options{Count: func(path string, code int) { counts[fmt.Sprint(path, " ", code)]++ }}, modeltest.Builder(modeltest.Config(), modeltest.OurNode()).Snapshot())
		h := story.Handler()
		b := modeltest.Builder(modeltest.Config(), modeltest.OurNode())
		story.snapshot = b.Snapshot()

		// Starting.
		mustAnswer(t, h, "/healthz", asJSON(200, `{"lastUpdated": "2000-01-01T00:00:00Z","currentTime": "2000-01-01T00:00:00Z", "nodeEligible": true}`))
		mustAnswer(t, h, "/livez", asJSON(200, `{"lastUpdated": "2000-01-01T00:00:00Z","currentTime": "2000-01-01T00:00:00Z"}`))
		mustAnswer(t, h, "/readyz", asText(503, "IPv4: no sync has succeeded yet\nIPv6: no sync has succeeded yet\n"))

		story.round(model.IPv6)
		mustAnswer(t, h, "/readyz", asText(503, "IPv6: no sync has succeeded yet\n"))

		// All is well: the last update seems to be now.
		story.round()
		time.Sleep(1500 * time.Millisecond)
		mustAnswer(t, h, "/healthz", asJSON(200, `{"lastUpdated": "2000-01-01T00:00:01.5Z","currentTime": "2000-01-01T00:00:01.5Z", "nodeEligible": true}`))
		mustAnswer(t, h, "/livez", asJSON(200, `{"lastUpdated": "2000-01-01T00:00:01.5Z","currentTime": "2000-01-01T00:00:01.5Z"}`))
		mustAnswer(t, h, "/readyz", asText(200, "ok\n"))

		// A change waits; the last update is that of the family that had one last.
		story.round(model.IPv6)
		story.change()
		time.Sleep(time.Hour)
		mustAnswer(t, h, "/healthz", asJSON(503, `{"lastUpdated": "2000-01-01T00:00:01.5Z","currentTime": "2000-01-01T01:00:01.5Z", "nodeEligible": true}`))
		mustAnswer(t, h, "/livez", asJSON(503, `{"lastUpdated": "2000-01-01T00:00:01.5Z","currentTime": "2000-01-01T01:00:01.5Z"}`))
		mustAnswer(t, h, "/readyz", asText(200, "ok\n"))

		// The node is about to go: only load balancers need to know.
		node := modeltest.OurNode()
		node.Deleting = true
		node.Set(b)
		story.snapshot = b.Snapshot()
		story.round()
		time.Sleep(58500 * time.Millisecond)
		mustAnswer(t, h, "/healthz", asJSON(503, `{"lastUpdated": "2000-01-01T01:00:01.5Z","currentTime": "2000-01-01T01:01:00Z", "nodeEligible": false}`))
		mustAnswer(t, h, "/livez", asJSON(200, `{"lastUpdated": "2000-01-01T01:01:00Z","currentTime": "2000-01-01T01:01:00Z"}`))

		want := map[string]int{
			"/healthz 200": 4, "/healthz 503": 4, "/livez 200": 6, "/livez 503": 2, "/readyz 200": 4, "/readyz 503": 4,
		}
		if diff := cmp.Diff(want, counts); diff != "" {
			t.Errorf("counted (-want +got):\n%s", diff)
		}

		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/healthz/more", nil))
		if w.Code != http.StatusNotFound {
			t.Errorf("another path: %d, want 404", w.Code)
		}
	})
}

// While nothing is programmed, the page names what doctor has found; later that is no
// reason.
func TestReadyzNamesFindings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		story := newHistory(t, Options{Findings: func() []string { return []string{"fail api-server"} }}, modeltest.Builder(modeltest.Config(), modeltest.OurNode()).Snapshot())
		mustAnswer(t, story.Handler(), "/readyz", asText(503, "IPv4: no sync has succeeded yet\nIPv6: no sync has succeeded yet\n"+
			"vmapd doctor has a finding: fail api-server\n"))
		story.round()
		mustAnswer(t, story.Handler(), "/readyz", asText(200, "ok\n"))
	})
}

// A proxy that needs a Node is ready once the cluster has had it, also if it is deleted then.
func TestReadyOnceTheClusterHasTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := modeltest.Builder(modeltest.Config())
		story := newHistory(t, Options{NodeName: "node-1"}, modeltest.Builder(modeltest.Config(), modeltest.OurNode()).Snapshot())
		h := story.Handler()
		story.snapshot = b.Snapshot()
		story.round()
		mustAnswer(t, h, "/readyz", asText(503, "the cluster has no Node \"node-1\": the name comes from --hostname-override, or is the host's\n"))
		if s := story.Status(); !s.Healthy || !s.Eligible {
			t.Errorf("healthy %v, eligible %v; want both: cluster IPs work", s.Healthy, s.Eligible)
		}
		node := modeltest.OurNode()
		node.Set(b)
		story.snapshot = b.Snapshot()
		story.round()
		mustAnswer(t, h, "/readyz", asText(200, "ok\n"))
		b.DeleteNode(node.Name)
		story.snapshot = b.Snapshot()
		story.round()
		mustAnswer(t, h, "/readyz", asText(200, "ok\n"))
	})
}
