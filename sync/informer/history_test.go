package informer

import (
	"strings"
	"testing"

	"github.com/vmapd/vmapd/sync/informer/apitest"
)

// The server was restored from a backup, and others have written so much before vmapd reads from it again
// that its version is no longer older than the known one. Nothing but the objects shows that its history
// is another.
func TestHistoryThatOvertakes(t *testing.T) {
	t.Parallel()
	for variant, lose := range map[string]func(s *apitest.Server) []string{
		"an object that never was": func(s *apitest.Server) []string {
			s.Set(service("api", "172.30.0.42"))
			return []string{"ns1/api:http at 172.30.0.42:80/tcp:", whole[0], whole[1], whole[2]}
		},
		"a change": func(s *apitest.Server) []string {
			s.Set(slice("web", "10.180.2.1"))
			return []string{"ns1/web:http at 172.30.0.41:80/tcp: 10.180.2.1:8080", whole[1], whole[2]}
		},
		"a deletion": func(s *apitest.Server) []string {
			s.Delete(service("web", ""))
			return whole[1:]
		},
		"only a bookmark": func(s *apitest.Server) []string {
			s.Bookmark()
			return whole
		},
	} {
		forEachServer(t, variant, func(t *testing.T, s *apitest.Server) {
			w := followWhole(t, s)
			backup := s.Backup()
			w.want(lose(s)...)
			s.Bookmark()
			w.watching()
			out(t, s, apitest.Refusing)
			w.fails(everything...)
			s.Restore(backup)
			s.Set(slice("other", "10.180.7.1")) // vmapd does not hear of this one by itself
			for range 10 {
				s.Set(node("node1", "192.168.0.2"))
			}
			s.Set(service("late", "172.30.0.45"))
			out(t, s, apitest.Up)
			want := append([]string{"ns1/late:http at 172.30.0.45:80/tcp:"}, whole...)
			w.want(want...)
			s.Set(service("other", "172.30.0.46"))
			w.want("ns1/late:http at 172.30.0.45:80/tcp:", "ns1/other:http at 172.30.0.46:80/tcp: 10.180.7.1:8080", whole[0], whole[1], whole[2])
			w.calm()
		})
	}
}

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
		for _, r := range everything {
			s.Stall(r, true)
		}
		s.DropWatches()
		s.Set(slice("api", "10.180.2.2")) // the newest slice; the other one is unchanged
		s.Delete(service("api", ""))      // the newest Service
		s.Set(service("new", "172.30.0.44"))
		s.Set(node("node1", "192.168.0.9"))
		for _, r := range everything {
			s.Stall(r, false)
		}
		w.want("ns1/new:http at 172.30.0.44:80/tcp:", whole[0], "node 192.168.0.9", whole[2])
		s.Set(service("api", "172.30.0.42"))
		w.want("ns1/api:http at 172.30.0.42:80/tcp: 10.180.2.2:8080", "ns1/new:http at 172.30.0.44:80/tcp:", whole[0], "node 192.168.0.9", whole[2])
		if got := lists(s, apitest.EndpointSlices) + lists(s, apitest.Services); got != before {
			t.Errorf("%d lists, want %d:\n%s", got, before, w.requests())
		}
		if got := w.logs.count("older state") + w.logs.count("does not know changes"); got > 0 {
			t.Errorf("log:\n%s", strings.Join(w.logs.all(), "\n"))
		}
	})
}
