package informer

import (
	"net/http"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/vmapd/vmapd/sync/informer/apitest"
)

func spoil(s *apitest.Server, f apitest.Fault) {
	for _, r := range everything {
		s.Fault(r, f)
	}
}

// troubles begin with a server that has worked. client-go keeps a silent connection for 45 seconds.
var troubles = []struct {
	name  string
	slow  bool
	begin func(*apitest.Server) error
}{
	{"cut in the middle", false, answers(apitest.CutShort)},
	{"a web page", false, answers(apitest.HTML)},
	{"an empty object", false, answers(apitest.EmptyObject)},
	{"overloaded", false, answers(http.StatusTooManyRequests)},
	{"unavailable", false, func(s *apitest.Server) error { return s.Outage(apitest.Unavailable) }},
	{"refusing connections", false, func(s *apitest.Server) error { return s.Outage(apitest.Refusing) }},
	{"silent", true, func(s *apitest.Server) error { return s.Outage(apitest.Frozen) }},
}

// answers are the same to all requests, when the server has forgotten the versions we know (410 Gone), and everything must
// be read again.
func answers(f apitest.Fault) func(*apitest.Server) error {
	return func(s *apitest.Server) error {
		spoil(s, f)
		s.Expire()
		return nil
	}
}

// What is known stays until the server works again, and what was deleted meanwhile goes then, without an event. The
// server is asked, but gets no storm of requests: one that is overloaded sends Retry-After, and gets none until then.
func TestTroublesLater(t *testing.T) {
	t.Parallel()
	for _, tt := range troubles {
		forEachServer(t, tt.name, func(t *testing.T, s *apitest.Server) {
			if tt.slow && testing.Short() {
				t.Skip("short: takes more than ten seconds")
			}
			s.Set(service("gone", "172.30.0.43"))
			s.Set(cidr("gone", "172.31.0.0/16"))
			w := follow(t, s)
			all := append(append([]string{"ns1/gone:http at 172.30.0.43:80/tcp:"}, whole...), "cidr 172.31.0.0/16")
			w.want(all...)
			w.watching()

			if err := tt.begin(s); err != nil {
				t.Fatal(err)
			}
			w.fails(everything...)
			w.is(all...)
			s.Delete(service("gone", ""))
			s.Delete(cidr("gone", ""))
			s.Set(slice("web", "10.180.2.1"))
			s.Set(node("node1", "192.168.0.9"))
			w.is(all...)

			spoil(s, apitest.NoFault)
			if err := s.Outage(apitest.Up); err != nil {
				t.Fatal(err)
			}
			w.want("ns1/web:http at 172.30.0.41:80/tcp: 10.180.2.1:8080", "node 192.168.0.9", whole[2])
			w.recovers(everything...)
		})
	}
}

// needed is what the proxy needs to be allowed, and the least there is of it.
var needed = []rbacv1.PolicyRule{
	{Verbs: []string{"list", "watch"}, APIGroups: []string{""}, Resources: []string{"services"}},
	{Verbs: []string{"list", "watch"}, APIGroups: []string{""}, Resources: []string{"nodes"}, ResourceNames: []string{"node1"}},
	{Verbs: []string{"list", "watch"}, APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}},
	{Verbs: []string{"list", "watch"}, APIGroups: []string{"networking.k8s.io"}, Resources: []string{"servicecidrs"}},
}

// A permission that is taken away and given back. All other kinds go on.
func TestPermissionIsTakenAway(t *testing.T) {
	t.Parallel()
	forEachServer(t, "", func(t *testing.T, s *apitest.Server) {
		s.SetRules(needed)
		w := followWhole(t, s)
		s.SetRules(needed[1:])
		s.DropWatches()
		w.fails(apitest.Services)
		s.Set(service("web", "172.30.0.42"))
		s.Set(slice("web", "10.180.2.1"))
		s.Set(node("node1", "192.168.0.9"))
		s.Set(cidr("kubernetes", "172.29.0.0/16"))
		w.want("ns1/web:http at 172.30.0.41:80/tcp: 10.180.2.1:8080", "node 192.168.0.9", "cidr 172.29.0.0/16")
		s.SetRules(needed)
		w.want("ns1/web:http at 172.30.0.42:80/tcp: 10.180.2.1:8080", "node 192.168.0.9", "cidr 172.29.0.0/16")
		w.recovers(apitest.Services)
	})
}
