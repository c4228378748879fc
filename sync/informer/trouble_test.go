package informer

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/vmapd/vmapd/sync/informer/apitest"
)

// The connection breaks, and the load balancer's next server is behind, for a while or for good. It answers questions for
// our version with 504 "Too large resource version" until it has that, and nothing is lost or written again meanwhile. A
// change arrives once the server has it, or from etcd.
func TestALaggingServer(t *testing.T) {
	t.Parallel()
	for variant, forGood := range map[string]bool{"it catches up": false, "for good": true} {
		if forGood && testing.Short() {
			continue // it takes ten attempts, a second each
		}
		forEachServer(t, variant, func(t *testing.T, s *apitest.Server) {
			w := followWhole(t, s)
			s.Delete(slice("web", ""))
			s.Set(service("api", "172.30.0.42"))
			s.Set(slice("web", "10.180.2.1"))
			s.Set(node("node1", "192.168.0.9"))
			last, _ := strconv.Atoi(s.Set(cidr("more", "172.31.0.0/16")))
			api, now := "ns1/api:http at 172.30.0.42:80/tcp:", []string{"node 192.168.0.9", whole[2], "cidr 172.31.0.0/16"}
			w.want(append([]string{api, "ns1/web:http at 172.30.0.41:80/tcp: 10.180.2.1:8080"}, now...)...)

			refused := func(r apitest.Resource) (n int) {
				for _, q := range s.Requests(r) {
					query := q.URL.Query()
					version, _ := strconv.Atoi(query.Get("resourceVersion"))
					if version > last-5 && (q.Verb == "list" || query.Has("sendInitialEvents")) {
						n++
					}
				}
				return n
			}
			nothing := func(when string) {
				t.Helper()
				if services, slices := w.state.Pending(); services+slices > 0 {
					t.Errorf("%s: %d Services and %d EndpointSlices are written again", when, services, slices)
				}
				w.is(append([]string{api, "ns1/web:http at 172.30.0.41:80/tcp: 10.180.2.1:8080"}, now...)...)
			}
			spoil(s, apitest.Silent)
			s.Lag(5)
			w.until("no watches", func() bool { return s.Watching(apitest.Services)+s.Watching(apitest.EndpointSlices) == 0 })
			spoil(s, apitest.NoFault)
			w.watching()
			nothing("while watches go on")

			spoil(s, http.StatusForbidden)
			s.Lag(5)
			w.fails(everything...)
			spoil(s, apitest.NoFault)
			w.until("refusals", func() bool { return refused(apitest.Services) > 1 && refused(apitest.EndpointSlices) > 1 })
			nothing("while lists are refused")

			s.Set(slice("web", "10.180.3.1"))
			if !forGood {
				s.Lag(0)
			}
			w.until("a change", func() bool { _, slices := w.state.Pending(); return slices > 0 })
			if services, slices := w.state.Pending(); services != 0 || slices != 1 {
				t.Errorf("%d Services and %d EndpointSlices are written, want the changed one alone", services, slices)
			}
			w.want(append([]string{api, "ns1/web:http at 172.30.0.41:80/tcp: 10.180.3.1:8080"}, now...)...)
			if !forGood {
				w.recovers(everything...) // the refusals are no failures
				return
			}
			w.calm()
			if got := w.logs.Count("ERROR", "504 Gateway Timeout"); got > len(everything) {
				t.Errorf("logged %d times that there is no answer for ten seconds, want once for each kind at most:\n%s", got, w.logs)
			}
		})
	}
}
