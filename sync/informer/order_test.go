package informer

import (
	"strings"
	"testing"

	"github.com/vmapd/vmapd/sync/informer/apitest"
)

func TestTheSameTwice(t *testing.T) {
	t.Parallel()
	forEachServer(t, "", func(t *testing.T, s *apitest.Server) {
		w := followWhole(t, s)
		before := lists(s, apitest.EndpointSlices)
		for range 3 {
			s.Replay(apitest.EndpointSlices, s.Set(slice("web", "10.180.2.1")))
		}
		s.Replay(apitest.Services, s.Set(service("api", "172.30.0.42")))
		w.want("ns1/api:http at 172.30.0.42:80/tcp:", "ns1/web:http at 172.30.0.41:80/tcp: 10.180.2.1:8080", whole[1], whole[2])
		s.Delete(service("api", ""))
		w.want("ns1/web:http at 172.30.0.41:80/tcp: 10.180.2.1:8080", whole[1], whole[2])
		if got := lists(s, apitest.EndpointSlices); got != before {
			t.Errorf("%d lists, want %d:\n%s", got, before, w.requests())
		}
		if got := w.logs.count("ERROR"); got > 0 {
			t.Errorf("errors:\n%s", strings.Join(w.logs.all(), "\n"))
		}
	})
}

// Older events follow newer ones: of an object that has changed since, of a deleted one, and
// after the watch was resumed.
func TestDisorder(t *testing.T) {
	t.Parallel()
	for variant, resumed := range map[string]bool{"": false, "resumed": true} {
		forEachServer(t, variant, func(t *testing.T, s *apitest.Server) {
			w := followWhole(t, s)
			old := s.Set(slice("web", "10.180.2.1"))
			gone := s.Set(service("gone", "172.30.0.43"))
			s.Delete(service("gone", ""))
			s.Set(slice("web", "10.180.3.1"))
			now := []string{"ns1/web:http at 172.30.0.41:80/tcp: 10.180.3.1:8080", whole[1], whole[2]}
			w.want(now...)
			if resumed {
				before := len(s.Requests(""))
				s.DropWatches()
				w.until("new watches", func() bool { return len(s.Requests("")) >= before+len(everything) })
				w.watching()
			}
			s.Replay(apitest.EndpointSlices, old)
			s.Replay(apitest.Services, gone)
			w.fails(apitest.EndpointSlices, apitest.Services)
			w.is(now...)
			w.recovers(apitest.EndpointSlices, apitest.Services)
			w.is(now...)
			s.Set(slice("web", "10.180.4.1"))
			w.want("ns1/web:http at 172.30.0.41:80/tcp: 10.180.4.1:8080", whole[1], whole[2])
		})
	}
}

// The server is away, and comes back with the state of a backup. That state is followed,
// although its versions are smaller than the known ones, and some will be used twice.
func TestOlderStateOfABackup(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"backup": false, "nothing": true} {
		forEachServer(t, name, func(t *testing.T, s *apitest.Server) {
			w := followWhole(t, s)
			backup, want := s.Backup(), whole
			if lost {
				backup, want = apitest.Backup{}, []string{"node 192.168.0.9"} // the last known address stays
			}
			// These versions are of a time that will not have been.
			s.Set(slice("web", "10.180.2.1"))
			s.Set(service("api", "172.30.0.42"))
			s.Set(node("node1", "192.168.0.9"))
			s.Set(cidr("more", "172.31.0.0/16"))
			w.want("ns1/api:http at 172.30.0.42:80/tcp:", "ns1/web:http at 172.30.0.41:80/tcp: 10.180.2.1:8080", "node 192.168.0.9", whole[2], "cidr 172.31.0.0/16")

			out(t, s, apitest.Refusing)
			w.fails(everything...)
			s.Restore(backup)
			out(t, s, apitest.Up)
			w.want(want...)
			w.until("recovery", func() bool { return w.logs.count("from the API server again") == len(everything) })
			if got := w.logs.count("WARN", "older state"); got != len(everything) {
				t.Errorf("%d lines about the backup, want one of each kind:\n%s", got, strings.Join(w.logs.all(), "\n"))
			}
			// Changes count again, and are not taken for old ones.
			s.Set(service("new", "172.30.0.44"))
			w.want(append([]string{"ns1/new:http at 172.30.0.44:80/tcp:"}, want...)...)
			w.calm()
		})
	}
}

// The server restarts so fast that no request fails: client-go repeats them for a while.
func TestOlderStateWithoutAFailure(t *testing.T) {
	t.Parallel()
	forEachServer(t, "", func(t *testing.T, s *apitest.Server) {
		w := followWhole(t, s)
		backup := s.Backup()
		s.Set(slice("web", "10.180.2.1"))
		w.want("ns1/web:http at 172.30.0.41:80/tcp: 10.180.2.1:8080", whole[1], whole[2])
		s.Restore(backup)
		w.want(whole...)
		s.Set(slice("web", "10.180.3.1"))
		w.want("ns1/web:http at 172.30.0.41:80/tcp: 10.180.3.1:8080", whole[1], whole[2])
		w.calm()
	})
}

// The first change after the restore has the version of another one before it.
func TestVersionThatComesTwice(t *testing.T) {
	t.Parallel()
	forEachServer(t, "", func(t *testing.T, s *apitest.Server) {
		w := followWhole(t, s)
		backup := s.Backup()
		first := s.Set(slice("web", "10.180.2.1"))
		s.Bookmark()
		s.Bookmark()
		w.want("ns1/web:http at 172.30.0.41:80/tcp: 10.180.2.1:8080", whole[1], whole[2])
		out(t, s, apitest.Refusing)
		w.fails(everything...)
		s.Restore(backup)
		if second := s.Set(slice("web", "10.180.3.1")); second != first {
			t.Fatalf("versions are %s and %s", first, second)
		}
		out(t, s, apitest.Up)
		w.want("ns1/web:http at 172.30.0.41:80/tcp: 10.180.3.1:8080", whole[1], whole[2])
	})
}
