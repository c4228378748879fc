package model_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// small are budgets that a test can exceed with few objects.
func small() model.Config {
	c := modeltest.Config()
	c.Budgets = model.Budgets{Ports: 3, Endpoints: 6, Entries: 24, Problems: 3}
	return c
}

// slice returns a slice of the Service web with so many endpoints.
func slice(name string, first, n int) modeltest.Slice {
	s := modeltest.NewSlice("ns1/"+name, "web").TCP("p1", 8080).TCP("p2", 8081).TCP("p3", 8082)
	for i := range n {
		s = s.Endpoint(fmt.Sprintf("10.0.0.%d", first+i))
	}
	return s
}

func TestBudgets(t *testing.T) {
	web := modeltest.NewService("ns1/web").On("172.30.0.41").TCP("p1", 81)
	ports3 := web.TCP("p2", 82).TCP("p3", 83)
	external := func(s modeltest.Service, n int) modeltest.Service {
		for i := range n {
			s.ExternalIPs = append(s.ExternalIPs, fmt.Sprintf("20.0.0.%d", i+1))
		}
		return s
	}
	ranges := func(n int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprintf("40.0.%d.%d/32", i/256, i%256))
		}
		return list
	}
	for _, tt := range []struct {
		name     string
		objects  []modeltest.Object
		want     map[string]string // the addresses and node ports of each port, and its endpoints
		problems []string
	}{
		{
			"ports",
			[]modeltest.Object{ports3.TCP("p4", 84).TCP("p5", 85).Sticky(10), slice("a", 1, 1)},
			map[string]string{"p1": "172.30.0.41: 1", "p2": "172.30.0.41: 1", "p3": "172.30.0.41: 1"},
			[]string{"spec.ports[3]: more than 3 ports with session affinity: this one and those after it are not served"},
		},
		{
			"entries: a frontend uses three, load balancers first",
			[]modeltest.Object{external(ports3.NodePort(30000), 9).LoadBalancer("30.0.0.1"), slice("a", 1, 1)},
			map[string]string{
				"p1": "172.30.0.41 30.0.0.1 20.0.0.1: 1", "p2": "172.30.0.41 30.0.0.1 20.0.0.1: 1",
				"p3": "172.30.0.41 30.0.0.1 20.0.0.1 node port: 1",
			},
			[]string{"spec.externalIPs: more than 24 entries (IPv4 frontends times endpoints): external IP 20.0.0.2 and those after it are not served"},
		},
		{
			"endpoints: whole slices, by name",
			[]modeltest.Object{web, slice("c", 7, 1), slice("b", 4, 3), slice("a", 1, 3)},
			map[string]string{"p1": "172.30.0.41: 6"},
			[]string{"more than 6 IPv4 endpoints: those of EndpointSlice c, and of further ones by name, are not served"},
		},
		{
			"entries: addresses",
			[]modeltest.Object{external(web.NodePort(30000), 9).LoadBalancer("30.0.0.1"), slice("a", 1, 5)},
			map[string]string{"p1": "172.30.0.41 30.0.0.1 20.0.0.1 node port: 5"},
			[]string{"spec.externalIPs: more than 24 entries (IPv4 frontends times endpoints): external IP 20.0.0.2 and those after it are not served"},
		},
		{
			"entries: ports",
			[]modeltest.Object{external(web.NodePort(30000).TCP("p2", 82).NodePort(30001).TCP("p3", 83).NodePort(30002), 1), slice("a", 1, 5)},
			map[string]string{"p1": "172.30.0.41 node port: 5", "p2": "172.30.0.41 node port: 5"},
			[]string{
				"spec.externalIPs: more than 24 entries (IPv4 frontends times endpoints): external IP 20.0.0.1 and those after it are not served",
				`spec.ports: more than 24 entries (IPv4 frontends times endpoints): port "p3" and those after it are not served`,
			},
		},
		{
			"source ranges: none is allowed",
			[]modeltest.Object{web.TCP("p2", 82).LoadBalancer("30.0.0.1").Ranges(ranges(2001)...), slice("a", 1, 1)},
			map[string]string{"p1": "172.30.0.41 30.0.0.1 from nowhere: 1", "p2": "172.30.0.41 30.0.0.1 from nowhere: 1"},
			[]string{"spec.loadBalancerSourceRanges: more than 4000 IPv4 source ranges times frontends of the load balancer: all connections to these are dropped"},
		},
		{
			"source ranges without a load balancer",
			[]modeltest.Object{web.Ranges(ranges(4001)...), slice("a", 1, 1)},
			map[string]string{"p1": "172.30.0.41: 1"},
			nil,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range 3 {
				b := model.NewBuilder(small())
				for _, o := range tt.objects {
					o.Set(b)
				}
				if diff := cmp.Diff(tt.want, served(b.Snapshot())); diff != "" {
					t.Errorf("what is served (-want +got):\n%s", diff)
				}
				var got []string
				for _, p := range b.Snapshot().Problems {
					if p.Budget == "" {
						t.Errorf("%v has no budget", p)
					}
					got = append(got, strings.TrimPrefix(p.Error(), "Service ns1/web: "))
				}
				if diff := cmp.Diff(tt.problems, got); diff != "" {
					t.Errorf("problems (-want +got):\n%s", diff)
				}
				slices.Reverse(tt.objects) // the order does not matter
			}
		})
	}
}

func served(s *model.Snapshot) map[string]string {
	ports := map[string]string{}
	for sp := range s.Family(model.IPv4).ServicePorts() {
		var list []string
		for _, fe := range sp.Frontends {
			text := fe.VIP.Addr.String()
			if fe.Kind == model.NodePort {
				text = "node port"
			}
			if fe.Restricted && len(sp.Allowed(fe)) == 0 {
				text += " from nowhere"
			}
			list = append(list, text)
		}
		ports[sp.Name.Port] = fmt.Sprintf("%s: %d", strings.Join(list, " "), len(sp.Endpoints))
	}
	return ports
}

// The problems of an object are reported one by one up to a number, and then by their number: a
// line and an event for each of 50,000 would be too many.
func TestManyProblemsAreCounted(t *testing.T) {
	old := modeltest.NewService("ns1/first").On("172.30.0.42", "fd00:172:30::42")
	web := modeltest.NewService("ns1/web").On("172.30.0.41", "fd00:172:30::41").CreatedAt(1)
	for port := range int32(2) {
		name := fmt.Sprintf("p%d", port)
		old = old.TCP(name, port+1).NodePort(30_001 + port)
		web = web.TCP(name, port+1).NodePort(30_001 + port)
	}
	old, web = old.External("20.0.0.1"), web.External("20.0.0.1", "nowhere")
	web = web.Algorithm(strings.Repeat("é", 100_000))
	c := modeltest.Config()
	c.Budgets.Problems = 3
	b := model.NewBuilder(c)
	for _, o := range []modeltest.Object{web, old} {
		o.Set(b)
	}
	// Six problems: the annotation, the address, two external IPs and two node ports, which
	// read the same in both families.
	got := b.Snapshot().Problems
	if len(got) != 4 || got[3].Message != "and 3 more problems" || got[3].Budget != model.ProblemsBudget {
		t.Errorf("problems: %v; want three, and the number of the others", got)
	}
	for _, p := range got {
		if len(p.Message) > 600 {
			t.Errorf("a message has %d bytes", len(p.Message))
		}
	}
	web.Annotations, web.ExternalIPs = nil, nil
	web.Set(b)
	if got := b.Snapshot().Problems; len(got) != 2 {
		t.Errorf("problems: %v; want one for each node port", got)
	}
}

// A Service with both families has half of the entries for each. Rounding keeps the part that
// is served while the number of endpoints changes by a few.
func TestBudgetOfEntriesIsForBothFamilies(t *testing.T) {
	c := modeltest.Config()
	c.Budgets.Entries = 400
	served := func(endpoints int, clusterIPs ...string) int {
		s := modeltest.NewService("ns1/web").On(clusterIPs...).TCP("p1", 81)
		for i := range 9 {
			s.ExternalIPs = append(s.ExternalIPs, fmt.Sprintf("20.0.0.%d", i+1))
		}
		b := model.NewBuilder(c)
		s.Set(b)
		slice("a", 1, endpoints).Set(b)
		n := 0
		for sp := range b.Snapshot().Family(model.IPv4).ServicePorts() {
			n += len(sp.Frontends)
		}
		return n
	}
	for _, tt := range []struct{ endpoints, one, both int }{{40, 10, 5}, {41, 9, 4}, {44, 9, 4}, {45, 8, 4}, {48, 8, 4}, {49, 7, 3}} {
		one, both := served(tt.endpoints, "172.30.0.41"), served(tt.endpoints, "172.30.0.41", "fd00:172:30::41")
		if one != tt.one || both != tt.both {
			t.Errorf("with %d endpoints, %d frontends of one family and %d of each of two, want %d and %d", tt.endpoints, one, both, tt.one, tt.both)
		}
	}
}

func TestEndpointsOverTheBudgetAreCounted(t *testing.T) {
	b := model.NewBuilder(small()) // 6 endpoints
	web := modeltest.NewService("ns1/web").On("172.30.0.41").TCP("p1", 81)
	unserved := func(want int) {
		t.Helper()
		s := b.Snapshot()
		if got := s.Family(model.IPv4).Unserved; got != want || s.Family(model.IPv6).Unserved != 0 {
			t.Errorf("want %d endpoints over the budget in IPv4, got %d", want, got)
		}
	}
	for _, step := range []struct {
		object modeltest.Object
		want   int
	}{
		{slice("a", 1, 4), 0}, // there is no Service
		{web, 0},
		{slice("b", 10, 3), 3},
		{slice("c", 20, 2), 5}, // also those that would fit behind b
		{modeltest.NewService("ns1/other").On("172.30.0.42").TCP("p1", 81), 5},
		{slice("b", 10, 1), 2}, // a slice is taken whole
		{slice("c", 20, 1), 0},
		{slice("b", 10, 9), 10},
	} {
		step.object.Set(b)
		unserved(step.want)
	}
	b.DeleteService(model.NamespacedName{Namespace: "ns1", Name: "web"})
	unserved(0)
	web.Set(b)
	unserved(10)
}

// A game server or a SIP proxy has thousands of UDP ports (kubernetes/kubernetes#129389).
func TestThousandsOfPortsAreServed(t *testing.T) {
	const ports, addresses = 3000, 10
	b := model.NewBuilder(modeltest.Config())
	web, pods := modeltest.NewService("ns1/web").On("172.30.0.41"), modeltest.NewSlice("ns1/web-1", "web")
	for i := range addresses {
		web.ExternalIPs = append(web.ExternalIPs, fmt.Sprintf("20.0.0.%d", i+1))
	}
	for i := range int32(ports) {
		name := fmt.Sprintf("p%d", i)
		web, pods = web.UDP(name, 10_000+i), pods.UDP(name, 10_000+i)
	}
	web.Set(b)
	pods.Ready("10.0.0.1", "10.0.0.2", "10.0.0.3").Set(b)
	s := b.Snapshot()
	if problems := s.Problems; len(problems) > 0 {
		t.Errorf("problems: %v", problems)
	}
	frontends := 0
	for sp := range s.Family(model.IPv4).ServicePorts() {
		frontends += len(sp.Frontends)
	}
	if want := ports * (1 + addresses); frontends != want {
		t.Errorf("%d frontends, want %d", frontends, want)
	}
}
