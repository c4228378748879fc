package model_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

func lb(name string, healthCheckNodePort int32) modeltest.Service {
	s := modeltest.NewService(name).On("172.30.0.41", "fd00:172:30::41").Typed("LoadBalancer").
		Policies("Cluster", "Local").TCP("http", 80).UDP("dns", 53)
	s.HealthCheckNodePort = healthCheckNodePort
	return s
}

func TestHealthChecksCountLocalReadyEndpoints(t *testing.T) {
	slice := func() modeltest.Slice {
		return modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).UDP("dns", 53)
	}
	leaving := modeltest.Conditions(false, true, true)
	local := modeltest.OnNode("node-1")
	for _, tt := range []struct {
		name    string
		objects objects
		want    []string
	}{
		{"without endpoints", objects{lb("ns1/web", 30100)}, []string{"ns1/web 30100 [{true 0} {true 0}]"}},
		{
			"a pod counts once, whatever its ports",
			objects{lb("ns1/web", 30100), slice().Local("10.0.0.2", "10.0.0.3").Ready("10.0.0.4")},
			[]string{"ns1/web 30100 [{true 2} {true 0}]"},
		},
		{
			"a terminating one does not, though it serves",
			objects{lb("ns1/web", 30100), slice().Local("10.0.0.2").Endpoint("10.0.0.3", local, leaving)},
			[]string{"ns1/web 30100 [{true 1} {true 0}]"},
		},
		{
			"nor does one that is not ready",
			objects{lb("ns1/web", 30100), slice().Endpoint("10.0.0.3", local, modeltest.Conditions(false, false, false))},
			[]string{"ns1/web 30100 [{true 0} {true 0}]"},
		},
		{
			"an older pod, here, does not make a pod elsewhere one of this node",
			objects{
				lb("ns1/web", 30100),
				slice().Ready("10.0.0.2").Endpoint("10.0.0.2", local, modeltest.Conditions(true, true, true)),
			},
			[]string{"ns1/web 30100 [{true 0} {true 0}]"},
		},
		{
			"two copies, of which one is ready and the other here, are one endpoint",
			objects{
				lb("ns1/web", 30100),
				slice().Ready("10.0.0.2").Endpoint("10.0.0.2", local, modeltest.Conditions(false, false, false)),
			},
			[]string{"ns1/web 30100 [{true 1} {true 0}]"},
		},
		{
			"each family counts its own",
			objects{
				lb("ns1/web", 30100), slice().Local("10.0.0.2"),
				modeltest.NewSlice("ns1/web-2", "web").IPv6().TCP("http", 8080).Local("fd00:10::2", "fd00:10::3"),
			},
			[]string{"ns1/web 30100 [{true 1} {true 2}]"},
		},
		{
			"a Service of one family",
			objects{lb("ns1/web", 30100).On("172.30.0.41"), slice().Local("10.0.0.2")},
			[]string{"ns1/web 30100 [{true 1} {false 0}]"},
		},
		{"not with policy Cluster", objects{lb("ns1/web", 30100).Policies("Local", "Cluster")}, nil},
		{"not of another type", objects{lb("ns1/web", 30100).Typed("NodePort")}, nil},
		{"not without a port", objects{lb("ns1/web", 0)}, nil},
		{"not with one that is none", objects{lb("ns1/web", 65536)}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := modeltest.Snapshot(modeltest.Config(), tt.objects...)
			var got []string
			for service, h := range s.HealthChecks.All() {
				got = append(got, fmt.Sprintf("%v %d %v", service, h.Port, h.Families))
			}
			testaid.Equal(t, "health checks", tt.want, got)
		})
	}
}

func TestChangesOfHealthChecks(t *testing.T) {
	local := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Local("10.0.0.2")
	b := modeltest.Builder(modeltest.Config(), lb("ns1/web", 30100), lb("ns1/other", 30101).On("172.30.0.42"), local)
	var before map[model.NamespacedName]model.HealthCheck
	changes := func() []string {
		t.Helper()
		now := maps.Collect(b.Snapshot().HealthChecks.All())
		var got []string
		for service, h := range now {
			if before[service] != h {
				got = append(got, fmt.Sprintf("%v %d %v", service, h.Port, h.Families))
			}
		}
		for service := range before {
			if _, ok := now[service]; !ok {
				got = append(got, "none")
			}
		}
		before = now
		slices.Sort(got)
		return got
	}
	testaid.Equal(t, "at first", []string{"ns1/other 30101 [{true 0} {false 0}]", "ns1/web 30100 [{true 1} {true 0}]"}, changes())
	local.Endpoint("10.0.0.9").Set(b)
	testaid.Equal(t, "with an endpoint elsewhere", nil, changes())
	local.Local("10.0.0.3").Set(b)
	testaid.Equal(t, "with one more here", []string{"ns1/web 30100 [{true 2} {true 0}]"}, changes())
	lb("ns1/web", 30100).Policies("Cluster", "Cluster").Set(b)
	testaid.Equal(t, "with policy Cluster", []string{"none"}, changes())
	b.DeleteService(modeltest.Name("ns1/other"))
	testaid.Equal(t, "after the other Service", []string{"none"}, changes())
	b.DeleteService(modeltest.Name("ns1/web"))
	testaid.Equal(t, "after both", nil, changes())
}

func TestNodeEligibility(t *testing.T) {
	tainted := modeltest.OurNode()
	tainted.Taints = []string{"a", model.TaintToBeDeleted}
	deleting := modeltest.OurNode()
	deleting.Deleting = true
	other := modeltest.NewNode("node-2", "192.168.0.9")
	other.Deleting = true
	for _, tt := range []struct {
		name    string
		objects objects
		want    model.NodeState
	}{
		{"no Node", nil, model.NodeState{}},
		{"a Node", objects{modeltest.OurNode()}, model.NodeState{Known: true, Eligible: true}},
		{"about to be deleted by the autoscaler", objects{tainted}, model.NodeState{Known: true, Why: "has the taint ToBeDeletedByClusterAutoscaler"}},
		{"being deleted", objects{deleting}, model.NodeState{Known: true, Why: "is being deleted"}},
		{"another one is being deleted", objects{modeltest.OurNode(), other}, model.NodeState{Known: true, Eligible: true}},
		{"no longer tainted", objects{tainted, modeltest.OurNode()}, model.NodeState{Known: true, Eligible: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			testaid.Equal(t, "node", tt.want, modeltest.Snapshot(modeltest.Config(), tt.objects...).Node)
		})
	}
	b := modeltest.Builder(modeltest.Config(), tainted)
	before := b.Snapshot()
	if tainted.Set(b); b.Snapshot() != before {
		t.Error("a new snapshot for a Node that says the same")
	}
	if b.DeleteNode("node-1"); b.Snapshot().Node.Known {
		t.Error("the Node is still known after its deletion")
	}
}

func TestNoLocalEndpointsAreCounted(t *testing.T) {
	remote := func(name string) modeltest.Slice {
		return modeltest.NewSlice("ns1/"+name+"-1", name).TCP("", 8080).Ready("10.0.0.9")
	}
	service := func(name string, n int, internal, external string) modeltest.Service {
		return modeltest.NewService(name).On(fmt.Sprintf("172.30.0.%d", n)).Policies(internal, external).TCP("", 80).NodePort(int32(30000 + n))
	}
	b := modeltest.Builder(modeltest.Config(),
		service("ns1/a", 1, "Local", "Cluster"), remote("a"),
		service("ns1/b", 2, "Local", "Local"), remote("b"),
		service("ns1/c", 3, "Cluster", "Local"), remote("c"),
		service("ns1/d", 4, "Local", "Local"), // without any endpoints
		service("ns1/e", 5, "Cluster", "Cluster"), remote("e"))
	check := func(internal, external int) {
		t.Helper()
		n := b.Snapshot().Family(model.IPv4).NoLocal
		testaid.Equal(t, "internal, external", model.NoLocal{Internal: internal, External: external}, n)
	}
	check(2, 2)
	remote("b").Local("10.0.0.2").Set(b)
	check(1, 1)
	b.DeleteService(modeltest.Name("ns1/a"))
	check(0, 1)
	b.DeleteService(modeltest.Name("ns1/c"))
	check(0, 0)
}

func TestConnectionsThatGoOn(t *testing.T) {
	leaving := modeltest.Conditions(false, true, true)
	gone := modeltest.Conditions(false, false, true)
	slice := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).UDP("dns", 53).
		Ready("10.0.0.2").Endpoint("10.0.0.3", leaving).Endpoint("10.0.0.4", gone).
		Endpoint("10.0.0.5", modeltest.Conditions(false, true, false))
	service := modeltest.NewService("ns1/web").On("172.30.0.41").TCP("http", 80).UDP("dns", 53)
	patient, never, odd := service.ConnectionGrace("1m30s"), service.ConnectionGrace("0s"), service.ConnectionGrace("-1s")
	minute := modeltest.Config()
	minute.ConnectionGrace = 60e9
	const dns = "dns: 0s true [10.0.0.3:53 10.0.0.5:53]"
	for _, tt := range []struct {
		name     string
		config   model.Config
		service  modeltest.Service
		want     []string
		problems []string
	}{
		{"UDP only", modeltest.Config(), service, []string{dns, "http: 0s false []"}, nil},
		{"as configured", minute, service, []string{dns, "http: 1m0s true [10.0.0.3:8080 10.0.0.5:8080]"}, nil},
		{"as the Service says", minute, patient, []string{dns, "http: 1m30s true [10.0.0.3:8080 10.0.0.5:8080]"}, nil},
		{"as the Service says: never", minute, never, []string{dns, "http: 0s false []"}, nil},
		{
			"as the Service says, badly", modeltest.Config(), odd,
			[]string{dns, "http: 0s false []"},
			[]string{`Service ns1/web: metadata.annotations[vmapd.io/connection-grace]: "-1s" is not a duration like "30s": the configuration decides`},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := modeltest.Snapshot(tt.config, tt.service, slice)
			var got []string
			for sp := range s.Family(model.IPv4).ServicePorts() {
				after, ok := sp.EndsStale()
				got = append(got, fmt.Sprintf("%s: %v %v %v", sp.Name.Port, after, ok, sp.Draining))
			}
			slices.Sort(got)
			testaid.Equal(t, "service ports", tt.want, got)
			checkProblems(t, s, tt.problems...)
		})
	}
}

func TestThePrimaryAddressCanBeConfigured(t *testing.T) {
	config := modeltest.Config()
	config.NodePortAddresses = model.NodePortAddresses{Primary: true}
	config.PrimaryAddress = netip.MustParseAddr("192.168.0.77")
	where := func() []string {
		s := modeltest.Builder(config, modeltest.OurNode()).Snapshot()
		return sorted(slices.Concat(s.Family(model.IPv4).NodePortAddrs, s.Family(model.IPv6).NodePortAddrs))
	}
	testaid.Equal(t, "node ports answer on", []string{"192.168.0.77", modeltest.NodeIP6}, where())
	config.PrimaryAddress = netip.MustParseAddr("fd00::77")
	testaid.Equal(t, "with another address, node ports answer on", []string{modeltest.NodeIP4, "fd00::77"}, where())
}
