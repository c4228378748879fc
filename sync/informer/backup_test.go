package informer

import (
	"testing"

	"github.com/vmapd/vmapd/sync/informer/apitest"
)

// The server is away, and comes back with the state of a backup. That state is followed,
// although its versions are smaller than the known ones, and some will be used twice.
func TestOlderStateOfABackup(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"backup": false, "nothing": true} {
		forEachServer(t, name, func(t *testing.T, s *apitest.Server) {
			w := followWhole(t, s)
			// These versions are of a time that will not have been.
			s.Set(slice("web", "10.180.2.1"))
			s.Set(service("api", "172.30.0.42"))
			s.Set(node("node1", "192.168.0.9"))
			s.Set(cidr("more", "172.31.0.0/16"))
			s.Set(slice("api", "10.180.2.2"))
			w.want("ns1/api:http at 172.30.0.42:80/tcp: 10.180.2.2:8080", "ns1/web:http at 172.30.0.41:80/tcp: 10.180.2.1:8080", "node 192.168.0.9", whole[2], "cidr 172.31.0.0/16")

			out(t, s, apitest.Refusing)
			w.fails(everything...)
			s.Reset()
			want := []string{"node 192.168.0.9"} // the last known address stays
			if !lost {
				setStandard(s)
				s.Set(slice("web", "10.180.3.1")) // has the version of the change that was lost
				want = append([]string{"ns1/web:http at 172.30.0.41:80/tcp: 10.180.3.1:8080"}, whole[1:]...)
			}
			before := len(s.Requests(""))
			out(t, s, apitest.Up)
			w.want(want...)
			asked := map[apitest.Resource]int{}
			for _, q := range s.Requests("")[before:] {
				if version := q.URL.Query().Get("resourceVersion"); q.Verb == "list" && version != "" && version != "0" {
					asked[q.Resource]++
				}
			}
			for r, n := range asked {
				if n > 2 { // the server asks for another try, and does not have the version then, either
					t.Errorf("%d requests for %s of a version that is not there any more", n, r)
				}
			}
			w.until("recovery", func() bool { return w.logs.Count("from the API server again") == len(everything) })
			if got := w.logs.Count("WARN", "older state"); got != len(everything) {
				t.Errorf("%d lines about the backup, want one of each kind:\n%s", got, w.logs)
			}
			// Changes count again, and are not taken for old ones.
			s.Set(service("new", "172.30.0.44"))
			w.want(append([]string{"ns1/new:http at 172.30.0.44:80/tcp:"}, want...)...)
			w.calm()
		})
	}
}
