package status_test

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/status"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/sync/health"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// Addresses: cluster IPs 172.30.0.0/16, pods 10.0.0.0/8, our node 192.168.0.2.

func web() modeltest.Service {
	return modeltest.NewService("ns1/web").On("172.30.0.41").TCP("http", 80)
}

func webSlice() modeltest.Slice {
	return modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Ready("10.0.0.2").Local("10.0.0.3")
}

// world is a Builder with a Recorder of its rounds.
type world struct {
	*model.Builder
	status.Recorder
}

func newWorld(objects ...modeltest.Object) *world {
	return &world{Builder: modeltest.Builder(modeltest.Config(), append(objects, modeltest.OurNode())...)}
}

// round ends a round at a moment. It fails for the given families.
func (w *world) round(n int, failed ...model.Family) *status.View {
	return w.ends(w.Snapshot(), n, failed...)
}

func (w *world) ends(s *model.Snapshot, n int, failed ...model.Family) *status.View {
	r := reconcile.Round{Snapshot: s, Started: modeltest.Moment(n)}
	for _, f := range failed {
		r.Failed[f], r.Err = true, errors.New("no")
	}
	w.Done(r)
	return w.View()
}

// printed returns the text of tables, without spaces at the ends of lines.
func printed(t *testing.T, tables []report.Table) string {
	t.Helper()
	var b strings.Builder
	if err := (&report.Watcher{W: &b}).Print(nil, tables); err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`(?m) +$`).ReplaceAllString(b.String(), "")
}

// services returns the table of Services at moment 100.
func services(t *testing.T, v *status.View, filter status.Filter, wide bool) string {
	t.Helper()
	list := v.Services(filter, 0)
	list.Namespaces, list.Wide = true, wide
	return printed(t, list.Tables(modeltest.Moment(100)))
}

func checkText(t *testing.T, want, got string) {
	t.Helper()
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestServices(t *testing.T) {
	w := newWorld(
		web().NodePort(30080).LoadBalancer("192.0.2.1"), webSlice(),
		modeltest.NewService("ns1/none").On("172.30.0.42").TCP("", 80),
		modeltest.NewService("ns2/elsewhere").On("172.30.0.43").External("192.168.99.11").TCP("", 80).Policies("Cluster",
			"Local"),
		modeltest.NewSlice("ns2/elsewhere-1", "elsewhere").TCP("", 8080).Ready("10.0.0.4"),
		modeltest.NewService("ns2/inside").On("172.30.0.44").TCP("", 80).Policies("Local", "Cluster"),
		modeltest.NewSlice("ns2/inside-1", "inside").TCP("", 8080).Ready("10.0.0.4"),
		modeltest.NewService("ns2/nonsense").On("x").TCP("", 80),
		modeltest.NewService("ns2/younger").CreatedAt(9).On("172.30.0.45").External("192.0.2.1").TCP("http", 80),
		modeltest.NewSlice("ns2/younger-1", "younger").TCP("http", 8080).Ready("10.0.0.5"),
	)
	v := w.round(10)
	const none, empty = "no endpoint is on this node, and the traffic policy is Local", "rejected: no endpoint is ready"
	checkText(t, `
NAMESPACE  NAME       PORT    CLUSTER-IP   ENDPOINTS  AGE     STATE
ns2        nonsense   <none>  <none>       0          <none>  left out: spec.clusterIPs[0]: "x" is not an IP address
ns1        none       80/tcp  172.30.0.42  0          90s     rejected: no endpoint is ready
ns2        inside     80/tcp  172.30.0.44  0          90s     dropped: `+none+`
ns2        elsewhere  80/tcp  172.30.0.43  1          90s     partly dropped: from outside: `+none+`
ns1        web        80/tcp  172.30.0.41  2          90s     forwarded
ns2        younger    80/tcp  172.30.0.45  1          90s     forwarded; 1 problem
6 service ports: 1 left out, 1 rejected, 1 dropped, 1 partly dropped, 2 forwarded
`, services(t, v, status.Filter{}, false))
	checkText(t, `
NAMESPACE  NAME  PORT    CLUSTER-IP   ENDPOINTS  LOCAL  PORT-NAME  NODE-PORT  EXTERNAL-IP  AGE  STATE
ns1        none  80/tcp  172.30.0.42  0          0      <none>     <none>     <none>       90s  `+empty+`
ns1        web   80/tcp  172.30.0.41  2          1      http       30080      192.0.2.1    90s  forwarded
2 service ports: 1 rejected, 1 forwarded
`, services(t, v, status.Filter{Namespace: "ns1"}, true))
}

func TestFiltersAndLimits(t *testing.T) {
	v := newWorld(web(), webSlice(), modeltest.NewService("ns2/web").On("172.30.0.42").TCP("metrics", 80),
		modeltest.NewSlice("ns2/web-1", "web").TCP("metrics", 8080).Ready("10.0.0.4"),
		modeltest.NewService("ns2/bad").On("nonsense").TCP("", 80)).round(1)
	for _, tt := range []struct {
		filter status.Filter
		limit  int
		want   []string
		left   int
	}{
		{status.Filter{}, 0, []string{"ns2/bad", "ns1/web", "ns2/web"}, 0},
		{status.Filter{}, 1, []string{"ns2/bad"}, 2},
		{status.Filter{}, 2, []string{"ns2/bad", "ns1/web"}, 1},
		{status.Filter{Namespace: "ns2"}, 0, []string{"ns2/bad", "ns2/web"}, 0},
		{status.Filter{Namespace: "ns2", Name: "web"}, 0, []string{"ns2/web"}, 0},
		{status.Filter{Namespace: "ns3"}, 0, nil, 0},
		{status.Filter{Search: "s2/w"}, 0, []string{"ns2/web"}, 0},
		{status.Filter{Search: "metr"}, 0, []string{"ns2/web"}, 0},
	} {
		got := v.Services(tt.filter, tt.limit)
		var names []string
		for _, i := range got.Items {
			names = append(names, i.Namespace+"/"+i.Name)
		}
		if !slices.Equal(tt.want, names) || got.Left != tt.left {
			t.Errorf("%+v, limit %d: want %v and %d left, got %v and %d", tt.filter, tt.limit, tt.want, tt.left, names, got.Left)
		}
	}
}

// The time tells since when a service port is in the kernel as it is, whatever happens to others.
func TestSince(t *testing.T) {
	other := modeltest.NewService("ns1/other").On("172.30.0.42").TCP("", 80)
	w := newWorld(web(), webSlice(), other)
	since := func(v *status.View) (list []string) {
		for _, i := range v.Services(status.Filter{}, 0).Items {
			list = append(list, i.Name+" "+i.Since.Sub(modeltest.Moment(0)).String()+" "+string(i.State))
		}
		return list
	}
	check := func(v *status.View, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, since(v)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	check(w.round(1), "other 1s rejected", "web 1s forwarded")
	webSlice().Ready("10.0.0.9").Set(w.Builder)
	check(w.round(5), "other 1s rejected", "web 5s forwarded")
	check(w.round(6), "other 1s rejected", "web 5s forwarded")
	other.TCP("second", 81).Set(w.Builder)
	v := w.round(8, model.IPv4)
	if got := v.Services(status.Filter{Name: "other"}, 0); got.Items[0].State != status.Waiting ||
		got.Items[0].Reason != "no" || !got.Items[0].Since.IsZero() {
		t.Errorf("a port whose round failed: %+v", got.Items[0])
	}
	if got := v.Services(status.Filter{Name: "web"}, 0); got.Items[0].State != report.Forwarded {
		t.Errorf("a port that was programmed before the round that failed: %+v", got.Items[0])
	}
	check(w.round(9), "other 1s rejected", "other 9s rejected", "web 5s forwarded")
	one := reconcile.Round{Snapshot: w.Snapshot(), Started: modeltest.Moment(9), Err: errors.New("not this one")}
	one.Refused[model.IPv4] = map[model.ServicePortName]bool{modeltest.PortName("ns1/other", "second", model.TCP): true}
	w.Done(one)
	if got := w.View().Services(status.Filter{Name: "other"}, 0).Items[0]; got.State != status.Waiting ||
		got.Reason != "not this one" {
		t.Errorf("a port that the kernel refuses alone: %+v", got)
	}
	check(w.round(9), "other 1s rejected", "other 9s rejected", "web 5s forwarded")
	other.Delete(w.Builder)
	w.round(10)
	other.Set(w.Builder)
	check(w.round(11), "other 11s rejected", "web 5s forwarded")
}

func TestNothingIsProgrammedYet(t *testing.T) {
	var r status.Recorder
	if got := r.View().Services(status.Filter{}, 0); len(got.Items) > 0 {
		t.Errorf("before the first round: %+v", got)
	}
	v := newWorld(web(), webSlice()).round(1, model.IPv4, model.IPv6)
	if got := v.Services(status.Filter{}, 0).Items[0]; got.State != status.Waiting || got.Reason != "no" {
		t.Errorf("after a round that failed: %+v", got)
	}
	var o status.Overview
	v.AddTo(&o, health.Status{})
	if diff := cmp.Diff(status.States{status.Waiting: 1}, o.States); diff != "" {
		t.Errorf("states, -want +got:\n%s", diff)
	}
}

// one returns the description of a Service at moment 100.
func one(t *testing.T, v *status.View, name string, found status.Found) string {
	t.Helper()
	of := v.One(model.NamespacedName{Namespace: "ns1", Name: name}, found)
	return printed(t, of.Tables(modeltest.Moment(100)))
}

func TestOneService(t *testing.T) {
	service := web().UDP("dns", 53).External("192.168.99.11").Policies("Cluster", "Local")
	draining := func(e *model.SliceEndpoint) { modeltest.Conditions(false, true, true)(e) }
	slice := webSlice().UDP("dns", 53).Endpoint("10.0.0.4").Endpoint("10.0.0.5", draining)
	v := newWorld(service, slice, modeltest.NewService("ns1/empty").On("172.30.0.42").TCP("", 80)).round(1)
	counts := status.Counts{}
	for _, sp := range v.Ports(status.Filter{Namespace: "ns1", Name: "web"}) {
		if sp.Name.Port == "http" {
			counts[sp] = 7
		}
	}
	at := func(pod, addr, node string, more func(*discoveryv1.Endpoint)) discoveryv1.Endpoint {
		e := discoveryv1.Endpoint{
			Addresses: []string{addr}, NodeName: &node,
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: pod},
		}
		more(&e)
		return e
	}
	is := func(*discoveryv1.Endpoint) {}
	candidates := func(sp *model.ServicePort) []model.Candidate {
		if sp.Name.Port != "http" {
			return nil
		}
		at := netip.MustParseAddrPort
		return []model.Candidate{{Addr: at("10.0.0.2:8080")}, {Addr: at("10.0.0.7:8080")}, {
			Addr:       at("10.0.0.8:8080"),
			Conditions: model.Terminating,
		}, {Addr: at("10.0.0.9:8080"), Conditions: model.Ready}}
	}
	places := []names.SliceObject{
		names.NewSlice(&discoveryv1.EndpointSlice{
			Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}, {}},
			Endpoints: []discoveryv1.Endpoint{
				at("web-1", "10.0.0.2", "node-2", func(e *discoveryv1.Endpoint) { e.Zone = new("a") }),
				at("web-2", "10.0.0.3", "node-1", is), at("web-7", "10.0.0.7", "node-1", is), at("web-8", "10.0.0.8", "node-1", is),
				at("ConfigMap", "10.0.0.9", "node-3", func(e *discoveryv1.Endpoint) { e.TargetRef.Kind = e.TargetRef.Name }),
				at("six", "fd00:10::7", "node-1", is), at("nonsense", "nonsense", "node-1", is),
				{},
			},
		}),
		names.NewSlice(&discoveryv1.EndpointSlice{
			Ports:     []discoveryv1.EndpointPort{{Name: new("dns"), Port: new(int32(53)), Protocol: new(corev1.ProtocolUDP)}},
			Endpoints: []discoveryv1.Endpoint{at("web-5", "10.0.0.5", "node-2", is)},
		}),
	}
	checkText(t, `
Service      ns1/web
IPv4 53/udp  forwarded (since 99s)
IPv4 80/tcp  forwarded (since 99s)
Connections  7 new ones since counting began
it rains

Addresses:
KIND         ADDRESS               POLICY   STATE
cluster IP   172.30.0.41:53/udp    Cluster  forwarded
external IP  192.168.99.11:53/udp  Local    forwarded
cluster IP   172.30.0.41:80/tcp    Cluster  forwarded
external IP  192.168.99.11:80/tcp  Local    forwarded

Endpoints:
ENDPOINT           POD     NODE                ZONE    SHARE   LOCAL-SHARE  TRACKED  STATE
10.0.0.2:53/udp    web-1   node-2              a       33.3%   <none>       <none>   serving
10.0.0.3:53/udp    web-2   node-1 (this node)  <none>  33.3%   100.0%       <none>   serving
10.0.0.4:53/udp    <none>  <none>              <none>  33.3%   <none>       <none>   serving
10.0.0.5:53/udp    web-5   node-2              <none>  <none>  <none>       <none>   draining
10.0.0.2:8080/tcp  web-1   node-2              a       33.3%   <none>       <none>   serving
10.0.0.3:8080/tcp  web-2   node-1 (this node)  <none>  33.3%   100.0%       <none>   serving
10.0.0.4:8080/tcp  <none>  <none>              <none>  33.3%   <none>       <none>   serving
10.0.0.7:8080/tcp  web-7   node-1              <none>  <none>  <none>       <none>   not ready
10.0.0.8:8080/tcp  web-8   node-1              <none>  <none>  <none>       <none>   terminating
10.0.0.9:8080/tcp  <none>  node-3              <none>  <none>  <none>       <none>   not used
`, one(t, v, "web", status.Found{
		Counts: counts, Places: (&names.Directory{Slices: places}).ByAddress(), Candidates: candidates,
		Notes: []string{"it rains"},
	}))
	checkText(t, `
Service      ns1/empty
IPv4 80/tcp  rejected: no endpoint is ready (since 99s)

Addresses:
KIND        ADDRESS             POLICY   STATE
cluster IP  172.30.0.42:80/tcp  Cluster  rejected

Endpoints:
none

Rules of IPv4 80/tcp:
  map no-endpoints
    172.30.0.42 . tcp . 80
    and 2 more
`, one(t, v, "empty", status.Found{Rules: func(*model.ServicePort) []string {
		return []string{"  map no-endpoints", "    172.30.0.42 . tcp . 80", "    and 2 more"}
	}}))
}

func TestFlowsAreCountedByEndpoint(t *testing.T) {
	v := newWorld(web().NodePort(30080), webSlice(), modeltest.NewService("ns1/other").On("172.30.0.42").TCP("",
		80)).round(1)
	name := model.NamespacedName{Namespace: "ns1", Name: "web"}
	flows, count := status.NewFlows(v.Ports(status.Filter{Namespace: name.Namespace, Name: name.Name}))
	for _, flow := range [][2]string{
		{"172.30.0.41:80", "10.0.0.2:8080"},
		{"172.30.0.41:80", "10.0.0.2:8080"},
		{"192.168.0.2:30080", "10.0.0.3:8080"},
		{"172.30.0.41:80", "10.0.0.9:8080"}, // removed
		{"172.30.0.41:81", "10.0.0.9:8080"}, // another port
		{"172.30.0.42:80", "10.0.0.9:8080"}, // another Service
	} {
		to := netip.MustParseAddrPort(flow[0])
		count(model.VIP{Addr: to.Addr(), Protocol: model.TCP, Port: to.Port()}, netip.MustParseAddrPort(flow[1]))
	}
	got := v.One(name, status.Found{Flows: flows})
	if n := got.Ports[0].Tracked; n == nil || *n != 4 {
		t.Errorf("tracked: %v, want 4", n)
	}
	var list []string
	for _, e := range got.Ports[0].Backends {
		list = append(list, fmt.Sprint(e.Address, " ", *e.Tracked, " ", e.State))
	}
	if diff := cmp.Diff([]string{"10.0.0.2:8080 2 serving", "10.0.0.3:8080 1 serving", "10.0.0.9:8080 1 gone"},
		list); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What is wrong stands above what is fine.
func TestOverview(t *testing.T) {
	w := newWorld(web(), webSlice(), modeltest.NewService("ns1/bad").On("nonsense").TCP("", 80))
	w.Done(reconcile.Round{Snapshot: w.Snapshot(), Started: modeltest.Moment(9), Took: 12300 * time.Microsecond})
	w.Done(reconcile.Round{
		Snapshot: w.Snapshot(), Started: modeltest.Moment(90), Err: errors.New("the kernel says no"),
		Failed: [2]bool{false, true},
	})
	o := status.Overview{
		Version: "v1", Started: modeltest.Moment(0), Node: "node-1", Backend: "nftables", Why: "the kernel has all " +
			"required features",
		Problems: []string{"it rains"}, Doctor: "1 failure, 0 warnings, 20 ok",
		Findings: []report.Line{{
			Level: report.Fail, Name: "forwarding", Text: "net.ipv4.ip_forward is 0: this node drops connections to other " +
				"nodes' pods",
			Fix: "sysctl -w net.ipv4.ip_forward=1",
		}},
	}
	h := health.Status{Ready: true}
	h.Families[model.IPv4].Synced, h.Families[model.IPv6].Waiting = modeltest.Moment(99), modeltest.Moment(97)
	w.View().AddTo(&o, h)
	checkText(t, `
Node           node-1
Ready          yes
Problem        it rains
Problem        Service ns1/bad: spec.clusterIPs[0]: "nonsense" is not an IP address
Doctor         1 failure, 0 warnings, 20 ok (vmapd doctor)
  fail         forwarding: net.ipv4.ip_forward is 0: this node drops connections to other nodes' pods
Service ports  1 forwarded
IPv4           1 service port, 2 endpoints; last sync 1s ago
IPv6           nothing is programmed yet
Backend        nftables (the kernel has all required features)
Version        v1
Started        100s ago
`, printed(t, o.Tables(modeltest.Moment(100))))
	if o.LastSync() != modeltest.Moment(99) {
		t.Errorf("last sync: %v", o.LastSync())
	}
}
