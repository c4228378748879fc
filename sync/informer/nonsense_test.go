package informer

import (
	"net/http"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/vmapd/vmapd/sync/informer/apitest"
)

// faults are the answers that are none.
var faults = map[apitest.Fault]string{
	apitest.CutShort: "cut in the middle", apitest.HTML: "a web page", apitest.NoBody: "no body",
	apitest.EmptyObject: "an empty object",
}

func spoil(s *apitest.Server, f apitest.Fault) {
	for _, r := range everything {
		s.Fault(r, f)
	}
}

// Later too, when the server has forgotten the versions we know, and everything must be
// read again.
func TestNonsenseLater(t *testing.T) {
	t.Parallel()
	for f, name := range faults {
		forEachServer(t, name, func(t *testing.T, s *apitest.Server) {
			s.Set(service("gone", "172.30.0.43"))
			w := follow(t, s)
			all := append([]string{"ns1/gone:http at 172.30.0.43:80/tcp:"}, whole...)
			w.want(all...)
			w.watching()

			spoil(s, f)
			s.Delete(service("gone", ""))
			w.want(whole...)
			s.Expire()
			w.fails(everything...)
			s.Set(slice("web", "10.180.2.1"))
			before := lists(s, apitest.Services)
			w.until("two more tries", func() bool { return lists(s, apitest.Services) > before+2 })
			w.is(whole...)

			spoil(s, apitest.NoFault)
			w.want("ns1/web:http at 172.30.0.41:80/tcp: 10.180.2.1:8080", whole[1], whole[2])
			w.recovers(everything...)
		})
	}
}

// An overloaded server sends Retry-After, and gets no request until then.
func TestTooManyRequests(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"at the start", "later"} {
		forEachServer(t, when, func(t *testing.T, s *apitest.Server) {
			if when == "at the start" {
				spoil(s, http.StatusTooManyRequests)
			}
			w := follow(t, s)
			if when == "later" {
				w.want(whole...)
				w.watching()
				spoil(s, http.StatusTooManyRequests)
				s.DropWatches()
			}
			w.fails(everything...)
			if got := w.logs.Count("ERROR", "429 Too Many Requests") + w.logs.Count("ERROR", "too many requests"); got != len(everything) {
				t.Errorf("%d lines say why:\n%s", got, w.logs)
			}
			s.Set(slice("web", "10.180.2.1"))
			if when == "later" {
				w.is(whole...)
			}
			spoil(s, apitest.NoFault)
			w.want("ns1/web:http at 172.30.0.41:80/tcp: 10.180.2.1:8080", whole[1], whole[2])
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

// A permission that is taken away and given back.
func TestPermissionIsTakenAway(t *testing.T) {
	t.Parallel()
	for _, tt := range servers {
		for i, r := range []apitest.Resource{apitest.Services, apitest.Nodes, apitest.EndpointSlices, apitest.ServiceCIDRs} {
			t.Run(tt.name+", "+string(r), func(t *testing.T) {
				t.Parallel()
				opts := tt.opts
				opts.Rules = needed
				s := standardServer(t, opts)
				w := followWhole(t, s)

				s.SetRules(append(needed[:i:i], needed[i+1:]...))
				s.DropWatches()
				w.fails(r)
				s.Set(service("web", "172.30.0.42"))
				s.Set(slice("web", "10.180.2.1"))
				s.Set(node("node1", "192.168.0.9"))
				s.Set(cidr("kubernetes", "172.29.0.0/16"))
				vip, pod, addr, prefix := "172.30.0.42", "10.180.2.1:8080", "node 192.168.0.9", "cidr 172.29.0.0/16"
				now := func() []string {
					return []string{"ns1/web:http at " + vip + ":80/tcp: " + pod, addr, prefix}
				}
				final := now()
				switch r {
				case apitest.Services:
					vip = "172.30.0.41"
				case apitest.EndpointSlices:
					pod = "10.180.0.1:8080 10.180.1.1:8080"
				case apitest.Nodes:
					addr = whole[1]
				case apitest.ServiceCIDRs:
					prefix = whole[2]
				default:
					t.Fatalf("no object of kind %s", r)
				}
				w.want(now()...)
				s.SetRules(needed)
				w.want(final...)
				w.recovers(r)
			})
		}
	}
}
