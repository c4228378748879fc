package informer

import (
	"testing"

	"github.com/vmapd/vmapd/sync/informer/apitest"
)

// After 410 Gone everything is listed again, and objects that were deleted meanwhile are
// removed without an event.
func TestExpiredVersionsAreListedAgain(t *testing.T) {
	t.Parallel()
	forEachServer(t, "", func(t *testing.T, s *apitest.Server) {
		s.Set(service("gone", "172.30.0.43"))
		s.Set(slice("gone", "10.180.3.1"))
		s.Set(cidr("gone", "172.29.0.0/16"))
		w := follow(t, s)
		w.want("ns1/gone:http at 172.30.0.43:80/tcp: 10.180.3.1:8080", whole[0], whole[1], "cidr 172.29.0.0/16", whole[2])
		w.watching()

		// Versions expire while there are no watches.
		spoil(s, apitest.Silent)
		s.DropWatches()
		w.until("no watches", func() bool { return s.Watching(apitest.Services)+s.Watching(apitest.Nodes) == 0 })
		s.Delete(service("gone", ""))
		s.Delete(slice("gone"))
		s.Delete(cidr("gone", ""))
		s.Set(service("new", "172.30.0.44"))
		s.Set(node("node1", "192.168.0.9"))
		s.Expire()
		spoil(s, apitest.NoFault)
		w.want("ns1/new:http at 172.30.0.44:80/tcp:", whole[0], "node 192.168.0.9", whole[2])
		w.watching()
		s.Delete(service("new", ""))
		w.want(whole[0], "node 192.168.0.9", whole[2])
		// Now watches are told.
		s.Expire()
		s.Set(service("api", "172.30.0.42"))
		w.want("ns1/api:http at 172.30.0.42:80/tcp:", whole[0], "node 192.168.0.9", whole[2])
	})
}
