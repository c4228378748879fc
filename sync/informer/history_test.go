package informer

import (
	"testing"

	"github.com/vmapd/vmapd/sync/informer/apitest"
)

// The connection ends, and much changes before vmapd is there again. The server's history is the known one,
// so nothing is listed again.
func TestHistoryThatGoesOn(t *testing.T) {
	t.Parallel()
	forEachServer(t, "", func(t *testing.T, s *apitest.Server) {
		w := followWhole(t, s)
		s.Set(service("api", "172.30.0.42"))
		s.Set(service("old", "172.30.0.43"))
		s.Set(slice("api", "10.180.2.1"))
		s.Delete(service("old", ""))
		w.want("ns1/api:http at 172.30.0.42:80/tcp: 10.180.2.1:8080", whole[0], whole[1], whole[2])
		before := lists(s, apitest.EndpointSlices) + lists(s, apitest.Services)
		spoil(s, apitest.Silent)
		s.DropWatches()
		s.Set(slice("api", "10.180.2.2")) // the newest slice; the other one is unchanged
		s.Delete(service("api", ""))      // the newest Service
		s.Set(service("new", "172.30.0.44"))
		s.Set(node("node1", "192.168.0.9"))
		spoil(s, apitest.NoFault)
		w.want("ns1/new:http at 172.30.0.44:80/tcp:", whole[0], "node 192.168.0.9", whole[2])
		s.Set(service("api", "172.30.0.42"))
		w.want("ns1/api:http at 172.30.0.42:80/tcp: 10.180.2.2:8080", "ns1/new:http at 172.30.0.44:80/tcp:", whole[0], "node 192.168.0.9", whole[2])
		if got := lists(s, apitest.EndpointSlices) + lists(s, apitest.Services); got != before {
			t.Errorf("%d lists, want %d:\n%s", got, before, w.requests())
		}
	})
}
