package informer

// Addresses: pods 10.0.0.0/8, cluster IPs 172.30.0.0/16, nodes 192.168.0.0/24 (ours .2).

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/sync/informer/apitest"
)

// servers are the kinds of API servers that must make no difference.
var servers = []struct {
	name string
	opts apitest.Options
}{
	{"with WatchList", apitest.Options{Secure: true}},
	{"without WatchList", apitest.Options{NoWatchList: true, Secure: true}},
}

func TestInitialState(t *testing.T) {
	t.Parallel()
	for _, tt := range append(slices.Clip(servers), []struct {
		name string
		opts apitest.Options
	}{
		{"without a selector for cluster IPs", apitest.Options{NoClusterIPSelector: true}},
		{"in JSON over HTTP/1.1", apitest.Options{JSONOnly: true}},
		{"lists without a selector", apitest.Options{NoWatchList: true, NoClusterIPSelector: true}},
	}...) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := standardServer(t, tt.opts)
			s.Set(node("node2", "192.168.0.3"))
			s.Set(service("headless", "None"))
			other := service("other", "172.30.0.50")
			other.Labels = map[string]string{model.LabelServiceProxyName: "another"}
			s.Set(other)
			labeled := service("labeled", "172.30.0.60")
			labeled.Labels = map[string]string{model.LabelHeadless: ""}
			s.Set(labeled)
			theirs := slice("labeled", "10.180.9.2")
			theirs.Labels[model.LabelServiceProxyName] = "another"
			s.Set(theirs)
			marked := slice("marked", "10.180.9.1")
			marked.Labels[model.LabelHeadless] = ""
			s.Set(marked)
			want := append([]string(nil), whole...)
			for i := range 5 {
				s.Set(service(fmt.Sprintf("x%d", i), fmt.Sprintf("172.30.1.%d", i)))
				want = append(want, fmt.Sprintf("ns1/x%d:http at 172.30.1.%d:80/tcp:", i, i))
			}
			want = append(append(want[:1:1], want[3:]...), want[1:3]...) // the node and the range come last
			want = append([]string{"ns1/labeled:http at 172.30.0.60:80/tcp: 10.180.9.2:8080"}, want...)
			w := follow(t, s)
			w.want(want...)
		})
	}
}

func TestSelectorsAreSent(t *testing.T) {
	t.Parallel()
	forEachServer(t, "", func(t *testing.T, s *apitest.Server) {
		w := followWhole(t, s)
		type selectors struct{ Labels, Fields string }
		want := map[apitest.Resource]selectors{
			apitest.Services: {
				"!service.kubernetes.io/service-proxy-name", "spec.clusterIP!=None",
			},
			apitest.EndpointSlices: {"!service.kubernetes.io/headless", ""},
			apitest.Nodes:          {"", "metadata.name=node1"},
			apitest.ServiceCIDRs:   {},
		}
		for _, r := range s.Requests("") {
			got := selectors{r.URL.Query().Get("labelSelector"), r.URL.Query().Get("fieldSelector")}
			testaid.Equal(t, fmt.Sprint("selectors of ", r.URL), want[r.Resource], got)
			if got := r.Header.Get("Accept"); !strings.HasPrefix(got, "application/vnd.kubernetes.protobuf") || !strings.Contains(got, "application/json") {
				t.Errorf("%v: Accept is %q", r.URL, got)
			}
		}
		for _, r := range everything {
			if first := s.Requests(r)[0]; first.URL.Query().Get("sendInitialEvents") != "true" || first.Proto != "HTTP/2.0" {
				t.Errorf("%s: the initial list is not asked for as a stream of HTTP/2 first, but by %v in %s", r, first.URL, first.Proto)
			}
		}
		if got := len(s.Requests("")); got > 12 {
			t.Errorf("%d requests to start with:\n%s", got, w.requests())
		}
	})
}

func TestChangesArrive(t *testing.T) {
	t.Parallel()
	forEachServer(t, "", func(t *testing.T, s *apitest.Server) {
		w := follow(t, s)
		w.want(whole...)

		s.Set(slice("web", "10.180.2.1"))
		w.want("ns1/web:http at 172.30.0.41:80/tcp: 10.180.2.1:8080", whole[1], whole[2])
		s.Delete(slice("web"))
		w.want("ns1/web:http at 172.30.0.41:80/tcp:", whole[1], whole[2])
		s.Set(slice("web", "10.180.0.1", "10.180.1.1"))
		s.Set(service("api", "172.30.0.42"))
		w.want("ns1/api:http at 172.30.0.42:80/tcp:", whole[0], whole[1], whole[2])

		// A label that takes a Service out of the selection is a deletion.
		api := service("api", "172.30.0.42")
		api.Labels = map[string]string{model.LabelServiceProxyName: "another"}
		s.Set(api)
		w.want(whole...)
		s.Set(service("api", "172.30.0.43"))
		w.want("ns1/api:http at 172.30.0.43:80/tcp:", whole[0], whole[1], whole[2])
		s.Delete(api)

		s.Set(node("node1", "192.168.0.9"))
		s.Set(node("node2", "192.168.0.3"))
		s.Set(cidr("more", "172.31.0.0/16"))
		w.want(whole[0], "node 192.168.0.9", whole[2], "cidr 172.31.0.0/16")
		s.Delete(node("node1", ""))
		s.Delete(cidr("kubernetes", ""))
		w.want(whole[0], "node 192.168.0.9", "cidr 172.31.0.0/16") // the Node's last address stays

		w.stop()
		s.Delete(service("web", ""))
		w.is(whole[0], "node 192.168.0.9", "cidr 172.31.0.0/16")
	})
}

// Until every kind is delivered, the state has all others, and is incomplete. No error but those of
// TestServiceCIDRsAreOptional means that the server lacks a kind.
func TestIncompleteUntilEverythingIsDelivered(t *testing.T) {
	t.Parallel()
	for late, fault := range map[apitest.Resource]apitest.Fault{
		apitest.EndpointSlices: apitest.Silent,
		apitest.Services:       http.StatusForbidden,
		apitest.Nodes:          http.StatusNotFound,
		apitest.ServiceCIDRs:   http.StatusInternalServerError,
	} {
		forEachServer(t, string(late), func(t *testing.T, s *apitest.Server) {
			s.Fault(late, fault)
			w := follow(t, s)
			others, tries := 2, 3
			if fault == apitest.Silent {
				others, tries = 3, 1 // the Service is there, without endpoints
			}
			w.until("the other kinds", func() bool { return len(w.incomplete()) == others && len(s.Requests(late)) >= tries })
			w.incomplete()
			s.Fault(late, apitest.NoFault)
			w.want(whole...)
			if fault != apitest.Silent {
				w.recovers(late)
			}
		})
	}
}

// A server may have no ServiceCIDRs, or refuse to show them.
func TestServiceCIDRsAreOptional(t *testing.T) {
	t.Parallel()
	for _, status := range []apitest.Fault{http.StatusNotFound, http.StatusForbidden} {
		forEachServer(t, fmt.Sprintf("status %d", status), func(t *testing.T, s *apitest.Server) {
			s.Fault(apitest.ServiceCIDRs, status)
			w := follow(t, s)
			w.want(whole[:2]...)
			if got := w.logs.Count("INFO", "unused cluster IPs will not be dropped", "resource=servicecidrs"); got != 1 {
				t.Errorf("logged %d times:\n%s", got, w.logs)
			}
			if got := w.logs.Count("ERROR"); got != 0 {
				t.Errorf("%d errors:\n%s", got, w.logs)
			}
			if got := len(s.Requests(apitest.ServiceCIDRs)); got != 1 {
				t.Errorf("asked %d times, want once", got)
			}
		})
	}
}

// Answers and events are heard, and the Date header has the skew of the clocks.
func TestWhatIsHeardOfTheServer(t *testing.T) {
	t.Parallel()
	s := standardServer(t, apitest.Options{})
	w := followWhole(t, s)
	first := w.source.Heard()["services"]
	if skew, ok := w.source.Client.Skew(); first.IsZero() || !ok || skew.Abs() > 5*time.Second {
		t.Fatalf("after the lists: heard at %v, skew %v", first, skew)
	}
	s.Set(service("api", "172.30.0.42"))
	w.want("ns1/api:http at 172.30.0.42:80/tcp:", whole[0], whole[1], whole[2])
	if last := w.source.Heard()["services"]; !last.After(first) {
		t.Errorf("an event is not heard: %v, after %v", last, first)
	}
}
