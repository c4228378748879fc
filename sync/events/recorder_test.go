package events

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

var web = model.NamespacedName{Namespace: "ns1", Name: "web"}

// Over a real socket: what the API server gets, byte for byte but for names and times.
func TestWhatTheServerGets(t *testing.T) {
	server := newServer()
	s := httptest.NewServer(server)
	w := inMemory(t, func(o *Options) { o.Client = server.client(t, s.URL) })
	w.ServiceUID = func(n model.NamespacedName) string {
		if n == web {
			return "2f1e"
		}
		return ""
	}
	w.server = server
	stop := w.start(t)
	w.Node(ReasonStarting, "")
	w.Service(web, ReasonServiceHealthFailed, "address in use")
	w.Service(model.NamespacedName{Namespace: "ns1", Name: "unknown"}, ReasonServiceHealthFailed, "address in use")
	testaid.WaitUntil(t, "three requests", func() bool { return len(w.server.seen()) == 3 })
	w.Node(ReasonStarting, "")
	testaid.WaitUntil(t, "four requests", func() bool { return len(w.server.seen()) == 4 })
	stop()
	requests := w.server.seen()
	s.Close()

	const post, patch = " application/json", " application/strategic-merge-patch+json"
	event := func(namespace string, fields map[string]any) map[string]any {
		maps.Copy(fields, map[string]any{
			"kind": "Event", "apiVersion": "events.k8s.io/v1",
			"metadata":            map[string]any{"namespace": namespace, "name": "NAME"},
			"eventTime":           "TIME",
			"reportingController": "vmapd", "reportingInstance": "vmapd-node-1",
			"deprecatedSource": map[string]any{}, "deprecatedFirstTimestamp": nil, "deprecatedLastTimestamp": nil,
		})
		return fields
	}
	node := map[string]any{"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "node-1"}
	service := func(name, uid string) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": "Service", "namespace": "ns1", "name": name, "uid": uid}
	}
	listen := func(regarding map[string]any) map[string]any {
		return event("ns1", map[string]any{
			"type": "Warning", "reason": "FailedToStartServiceHealthcheck", "action": "Listen",
			"note": "address in use", "regarding": regarding,
		})
	}
	want := []request{
		{"POST /apis/events.k8s.io/v1/namespaces/default/events" + post, event("default", map[string]any{
			"type": "Normal", "reason": "Starting", "action": "StartKubeProxy", "regarding": node,
		})},
		{"POST /apis/events.k8s.io/v1/namespaces/ns1/events" + post, listen(service("web", "2f1e"))},
		{"POST /apis/events.k8s.io/v1/namespaces/ns1/events" + post, listen(service("unknown", "ns1/unknown"))},
		{"PATCH /apis/events.k8s.io/v1/namespaces/default/events/NAME" + patch, map[string]any{
			"series": map[string]any{"count": 2.0, "lastObservedTime": "TIME"},
		}},
	}
	var got []request
	for _, r := range requests {
		got = append(got, masked(t, r))
	}
	testaid.Equal(t, "requests", want, got)
}

// masked puts words in place of a request's names and times, and checks those.
func masked(t *testing.T, r request) request {
	t.Helper()
	stamp := func(in map[string]any, field string) {
		v, ok := in[field].(string)
		if !ok {
			return
		}
		at, err := time.Parse("2006-01-02T15:04:05.000000Z07:00", v)
		if err != nil || time.Since(at) < 0 || time.Since(at) > time.Minute {
			t.Errorf("%s is %q, %v, want about now", field, v, err)
		}
		in[field] = "TIME"
	}
	stamp(r.Body, "eventTime")
	if series, ok := r.Body["series"].(map[string]any); ok {
		stamp(series, "lastObservedTime")
	}
	if meta, ok := r.Body["metadata"].(map[string]any); ok {
		name, object := meta["name"].(string), r.Body["regarding"].(map[string]any)["name"].(string)
		if !strings.HasPrefix(name, object+".") {
			t.Errorf("the event is named %q, want the name of %s before the dot", name, object)
		}
		meta["name"] = "NAME"
	}
	r.Line = regexp.MustCompile(`/node-1\.\S+`).ReplaceAllString(r.Line, "/NAME")
	return r
}

// kubectl shows events that are no trouble as Normal.
func TestTypes(t *testing.T) {
	for reason, want := range map[string]string{
		ReasonStarting: "Normal", ReasonNodeEligible: "Normal", ReasonNodeNotEligible: "Warning", ReasonOtherProxy: "Warning",
		ReasonOverBudget: "Warning",
	} {
		if got := eventType(reason); got != want {
			t.Errorf("%s: %s, want %s", reason, got, want)
		}
	}
}

func TestSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := inMemory(t)
		stop := w.start(t)
		again := func(message string) {
			w.Node(ReasonHealthzFailed, message)
			synctest.Wait()
		}
		again("in use")
		again("in use")
		again("forbidden") // other words are another event
		time.Sleep(time.Hour)
		again("in use")
		w.server.set(func() { clear(w.server.events) }) // the server forgets events in time
		again("in use")
		again("in use")
		stop()
		want := []string{
			"POST node-1: FailedToStartProxierHealthcheck in use",
			"PATCH node-1 x2",
			"POST node-1: FailedToStartProxierHealthcheck forbidden",
			"PATCH node-1 x3",
			"PATCH node-1 x4",
			"POST node-1: FailedToStartProxierHealthcheck in use x4",
			"PATCH node-1 x5",
		}
		testaid.Equal(t, "requests", want, w.server.lines())
	})
}

func TestTheServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := inMemory(t)
		w.server.away = true
		stop := w.start(t)
		start := time.Now()
		w.Node(ReasonHealthzFailed, "1")
		w.Node(ReasonHealthzFailed, "2")
		if took := time.Since(start); took > 0 {
			t.Errorf("recording blocked for %v", took)
		}
		time.Sleep(90 * time.Second)
		w.server.set(func() { w.server.away = false })
		time.Sleep(15 * time.Second)
		synctest.Wait()
		want := []string{
			"POST node-1: FailedToStartProxierHealthcheck 1",
			"POST node-1: FailedToStartProxierHealthcheck 2",
		}
		testaid.Equal(t, "requests", want, w.server.lines())
		if got := strings.Count(w.log.String(), "level=WARN"); got != 1 {
			t.Errorf("%d warnings, want 1:\n%s", got, w.log.String())
		}
		stop()
	})
}

func TestAnswersOfTheServer(t *testing.T) {
	const one = "POST node-1: Starting"
	for _, tt := range []struct {
		name    string
		answers []int // then the right ones
		want    []string
	}{
		{"has trouble for a moment", []int{http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout}, []string{one, one, one, one}},
		{"has too much to do", []int{http.StatusTooManyRequests}, []string{one, one}},
		{"forbids it", []int{http.StatusForbidden}, []string{one}},
		{"finds it invalid", []int{http.StatusUnprocessableEntity}, []string{one}},
		{"has no such namespace", []int{http.StatusNotFound}, []string{one}},
	} {
		t.Run("the server "+tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := inMemory(t)
				w.server.answer = func(n int) int {
					if n < len(tt.answers) {
						return tt.answers[n]
					}
					return 0
				}
				w.start(t)
				w.Node(ReasonStarting, "")
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				testaid.Equal(t, "requests", tt.want, w.server.lines())
			})
		})
	}
}

func TestWhatIsTooLongIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := inMemory(t, func(o *Options) { o.NodeName = strings.Repeat("n", 253) })
		w.Node(ReasonStarting, strings.Repeat("ä", 600))
		w.start(t)
		synctest.Wait()
		body := w.server.seen()[0].Body
		if note := body["note"].(string); note != strings.Repeat("ä", 510)+"…" {
			t.Errorf("a note of %d bytes: %s", len(note), note)
		}
		if instance := body["reportingInstance"].(string); len(instance) != maxInstance {
			t.Errorf("an instance of %d bytes, want %d", len(instance), maxInstance)
		}
		if name := body["metadata"].(map[string]any)["name"].(string); len(name) > 253 {
			t.Errorf("a name of %d bytes", len(name))
		}
		if got := cut("short", maxNote); got != "short" {
			t.Errorf("got %q", got)
		}
	})
}
