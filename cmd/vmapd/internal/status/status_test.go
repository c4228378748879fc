package status_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/status"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
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

// table returns a table's text at moment 100, without spaces at the ends of lines.
func table(t *testing.T, a interface {
	Table(wide bool, now time.Time) status.Table
}, wide bool,
) string {
	t.Helper()
	var b strings.Builder
	if err := a.Table(wide, modeltest.Moment(100)).Write(&b); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(b.String()) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	return strings.Join(lines, "\n") + "\n"
}

func checkText(t *testing.T, want, got string) {
	t.Helper()
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestServices(t *testing.T) {
	w := newWorld(
		web().NodePort(30080).LoadBalancer("192.168.98.11"), webSlice(),
		modeltest.NewService("ns1/empty").On("172.30.0.42").TCP("", 80),
		modeltest.NewService("ns2/elsewhere").On("172.30.0.43").External("192.168.99.11").TCP("", 80).Policies("Cluster", "Local"),
		modeltest.NewSlice("ns2/elsewhere-1", "elsewhere").TCP("", 8080).Ready("10.0.0.4"),
		modeltest.NewService("ns2/inside").On("172.30.0.44").TCP("", 80).Policies("Local", "Cluster"),
		modeltest.NewSlice("ns2/inside-1", "inside").TCP("", 8080).Ready("10.0.0.4"),
		modeltest.NewService("ns2/nonsense").On("nonsense").TCP("", 80),
		modeltest.NewService("ns2/younger").CreatedAt(9).On("172.30.0.45").External("192.168.98.11").TCP("http", 80),
		modeltest.NewSlice("ns2/younger-1", "younger").TCP("http", 8080).Ready("10.0.0.5"),
	)
	v := w.round(10)
	checkText(t, `
NAMESPACE  NAME       PORT    CLUSTER-IP   ENDPOINTS  SINCE  STATE
ns1        empty      80/tcp  172.30.0.42  0          90s    refused: no endpoint is ready
ns1        web        80/tcp  172.30.0.41  2          90s    forwarded
ns2        elsewhere  80/tcp  172.30.0.43  1          90s    partly: from outside, connections are dropped: none of the endpoints is on this node, and the policy is Local
ns2        inside     80/tcp  172.30.0.44  0          90s    dropped: none of the endpoints is on this node, and the policy is Local
ns2        nonsense   -       -            0          -      left out: spec.clusterIPs[0]: "nonsense" is not an IP address
ns2        younger    80/tcp  172.30.0.45  1          90s    forwarded; 1 problem
`, table(t, v.Services(status.Filter{}, 0, nil), false))
	checkText(t, `
NAMESPACE  NAME  PORT    CLUSTER-IP   ENDPOINTS  HERE  PORT-NAME  NODE-PORT  ADDRESSES      CONNECTIONS  SINCE  STATE
ns1        web   80/tcp  172.30.0.41  2          1     http       30080      192.168.98.11  7            90s    forwarded
`, table(t, v.Services(status.Filter{Namespace: "ns1", Name: "web"}, 0, status.Counts{
		{Name: modeltest.PortName("ns1/web", "http", model.TCP)}: 7,
	}), true))
	one := v.Services(status.Filter{Namespace: "ns2", Name: "younger"}, 0, nil)
	checkText(t, `
NAMESPACE  NAME     PORT    CLUSTER-IP   ENDPOINTS  SINCE  STATE
ns2        younger  80/tcp  172.30.0.45  1          90s    forwarded; 1 problem
problem: Service ns2/younger: external IP 192.168.98.11:80/tcp of port "http" belongs to Service ns1/web, which is older
`, table(t, one, false))
	if got := one.Items[0].Details.Frontends; len(got) != 1 || got[0].Kind != "cluster IP" || got[0].State != status.Forwarded {
		t.Errorf("frontends: %+v", got)
	}
}

func TestFiltersAndLimits(t *testing.T) {
	v := newWorld(web(), webSlice(), modeltest.NewService("ns2/web").On("172.30.0.42").TCP("metrics", 80),
		modeltest.NewService("ns2/bad").On("nonsense").TCP("", 80)).round(1)
	for _, tt := range []struct {
		filter status.Filter
		limit  int
		want   []string
		left   int
	}{
		{status.Filter{}, 0, []string{"ns1/web", "ns2/bad", "ns2/web"}, 0},
		{status.Filter{}, 1, []string{"ns1/web"}, 1},
		{status.Filter{}, 2, []string{"ns1/web", "ns2/bad"}, 1},
		{status.Filter{Namespace: "ns2"}, 0, []string{"ns2/bad", "ns2/web"}, 0},
		{status.Filter{Namespace: "ns2", Name: "web"}, 0, []string{"ns2/web"}, 0},
		{status.Filter{Namespace: "ns3"}, 0, nil, 0},
		{status.Filter{Search: "s2/w"}, 0, []string{"ns2/web"}, 0},
		{status.Filter{Search: "metr"}, 0, []string{"ns2/web"}, 0},
	} {
		got := v.Services(tt.filter, tt.limit, nil)
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
		for _, i := range v.Services(status.Filter{}, 0, nil).Items {
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
	check(w.round(1), "other 1s refused", "web 1s forwarded")
	webSlice().Ready("10.0.0.9").Set(w.Builder)
	check(w.round(5), "other 1s refused", "web 5s forwarded")
	check(w.round(6), "other 1s refused", "web 5s forwarded")
	other.TCP("second", 81).Set(w.Builder)
	v := w.round(8, model.IPv4)
	if got := v.Services(status.Filter{Name: "other"}, 0, nil); got.Items[1].State != status.Waiting || got.Items[1].Reason != "no" || !got.Items[1].Since.IsZero() {
		t.Errorf("a port whose round failed: %+v", got.Items[1])
	}
	if got := v.Services(status.Filter{Name: "web"}, 0, nil); got.Items[0].State != status.Forwarded {
		t.Errorf("a port that was programmed before the round that failed: %+v", got.Items[0])
	}
	check(w.round(9), "other 1s refused", "other 9s refused", "web 5s forwarded")
	one := reconcile.Round{Snapshot: w.Snapshot(), Started: modeltest.Moment(9), Err: errors.New("not this one")}
	one.Refused[model.IPv4] = map[model.ServicePortName]bool{modeltest.PortName("ns1/other", "second", model.TCP): true}
	w.Done(one)
	if got := w.View().Services(status.Filter{Name: "other"}, 0, nil).Items[1]; got.State != status.Waiting || got.Reason != "not this one" {
		t.Errorf("a port that the kernel refuses alone: %+v", got)
	}
	check(w.round(9), "other 1s refused", "other 9s refused", "web 5s forwarded")
	other.Delete(w.Builder)
	w.round(10)
	other.Set(w.Builder)
	check(w.round(11), "other 11s refused", "web 5s forwarded")
}

func TestNothingIsProgrammedYet(t *testing.T) {
	var r status.Recorder
	if got := r.View().Services(status.Filter{}, 0, nil); len(got.Items) > 0 {
		t.Errorf("before the first round: %+v", got)
	}
	v := newWorld(web(), webSlice()).round(1, model.IPv4, model.IPv6)
	if got := v.Services(status.Filter{}, 0, nil).Items[0]; got.State != status.Waiting || got.Reason != "no" {
		t.Errorf("after a round that failed: %+v", got)
	}
	o := v.Overview(daemon())
	if diff := cmp.Diff([]status.Number{{State: status.Waiting, Number: 1}}, o.ByState); diff != "" {
		t.Errorf("states, -want +got:\n%s", diff)
	}
}

func TestEndpoints(t *testing.T) {
	service := web().UDP("dns", 53).External("192.168.99.11").Policies("Cluster", "Local")
	draining := func(e *model.SliceEndpoint) { modeltest.Conditions(false, true, true)(e) }
	slice := webSlice().UDP("dns", 53).Endpoint("10.0.0.4").Endpoint("10.0.0.5", draining)
	v := newWorld(service, slice, modeltest.NewService("ns1/empty").On("172.30.0.42").TCP("", 80)).round(1)
	checkText(t, `
NAMESPACE  NAME   PORT    ENDPOINTS
ns1        empty  80/tcp  <none>
ns1        web    53/udp  10.0.0.2:53,10.0.0.3:53,10.0.0.4:53 + 1 more
ns1        web    80/tcp  10.0.0.2:8080,10.0.0.3:8080,10.0.0.4:8080
`, table(t, v.Endpoints(status.Filter{}), false))
	checkText(t, `
NAMESPACE  NAME  PORT    ENDPOINT       SHARE  LOCAL-SHARE  HERE  STATE
ns1        web   53/udp  10.0.0.2:53    33.3%  -            no    serving
ns1        web   53/udp  10.0.0.3:53    33.3%  100.0%       yes   serving
ns1        web   53/udp  10.0.0.4:53    33.3%  -            no    serving
ns1        web   53/udp  10.0.0.5:53    -      -            -     draining: old connections only
ns1        web   80/tcp  10.0.0.2:8080  33.3%  -            no    serving
ns1        web   80/tcp  10.0.0.3:8080  33.3%  100.0%       yes   serving
ns1        web   80/tcp  10.0.0.4:8080  33.3%  -            no    serving
`, table(t, v.Endpoints(status.Filter{Name: "web"}), false))
	checkText(t, `
NAMESPACE  NAME   PORT    ENDPOINT  SHARE  LOCAL-SHARE  HERE  STATE
ns1        empty  80/tcp  -         -      -            -     refused: no endpoint is ready
`, table(t, v.Endpoints(status.Filter{Name: "empty"}), false))
}

func TestConnections(t *testing.T) {
	v := newWorld(web().NodePort(30080), webSlice(), modeltest.NewService("ns1/other").On("172.30.0.42").TCP("", 80)).round(1)
	flow := func(to, at string) status.Flow {
		dest := netip.MustParseAddrPort(to)
		return status.Flow{To: model.VIP{Addr: dest.Addr(), Protocol: model.TCP, Port: dest.Port()}, At: netip.MustParseAddrPort(at)}
	}
	add := func(f *status.Flows) *status.Flows {
		f.Add(flow("172.30.0.41:80", "10.0.0.2:8080"))
		f.Add(flow("172.30.0.41:80", "10.0.0.2:8080"))
		f.Add(flow("192.168.0.2:30080", "10.0.0.3:8080"))
		f.Add(flow("172.30.0.41:80", "10.0.0.9:8080")) // removed
		f.Add(flow("172.30.0.41:81", "10.0.0.9:8080")) // another port
		f.Add(flow("172.30.0.99:80", "10.0.0.9:8080")) // another Service
		return f
	}
	counts := status.Counts{{Name: modeltest.PortName("ns1/web", "http", model.TCP)}: 7}
	checkText(t, `
NAMESPACE  NAME   PORT    FAMILY  NEW  TRACKED
ns1        other  80/tcp  IPv4    -    0
ns1        web    80/tcp  IPv4    7    4
`, table(t, add(v.Flows(status.Filter{})).Connections(counts, true, ""), false))
	checkText(t, `
NAMESPACE  NAME  PORT    FAMILY  NEW  TRACKED  ENDPOINT
ns1        web   80/tcp  IPv4    -    4        all
ns1        web   80/tcp  IPv4    -    2        10.0.0.2:8080
ns1        web   80/tcp  IPv4    -    1        10.0.0.3:8080
ns1        web   80/tcp  IPv4    -    1        10.0.0.9:8080 (gone)
`, table(t, add(v.Flows(status.Filter{Name: "web"})).Connections(nil, true, ""), false))
	checkText(t, `
NAMESPACE  NAME   PORT    FAMILY  NEW  TRACKED
ns1        other  80/tcp  IPv4    -    -
ns1        web    80/tcp  IPv4    -    -
too many
`, table(t, v.Flows(status.Filter{}).Connections(nil, false, "too many"), false))
	want := []model.VIP{{Addr: netip.IPv4Unspecified(), Protocol: model.TCP, Port: 80}, {Addr: netip.IPv4Unspecified(), Protocol: model.TCP, Port: 30080}}
	if got := v.Flows(status.Filter{}).Ports(model.IPv4); len(got) != len(want) || !slices.Contains(got, want[0]) || !slices.Contains(got, want[1]) {
		t.Errorf("ports: want %v, got %v", want, got)
	}
}

func daemon() status.Daemon {
	return status.Daemon{
		Version: "v1", Started: modeltest.Moment(0), Node: "node-1", Backend: "nftables", Why: "the kernel has all required features",
		Ready: true, Healthy: true, Tracked: 7, TrackedMost: 1000,
		Synced: []time.Time{modeltest.Moment(99), {}}, Waiting: []time.Time{{}, modeltest.Moment(97)},
	}
}

func TestOverview(t *testing.T) {
	w := newWorld(web(), webSlice(), modeltest.NewService("ns1/bad").On("nonsense").TCP("", 80))
	w.Done(reconcile.Round{Snapshot: w.Snapshot(), Started: modeltest.Moment(9), Took: 12300 * time.Microsecond, Full: true, Services: 2, EndpointSlices: 1})
	w.Done(reconcile.Round{
		Snapshot: w.Snapshot(), Started: modeltest.Moment(90), Took: 400 * time.Microsecond, EndpointSlices: 1,
		Err: errors.New("the kernel says no"), Failed: [2]bool{false, true},
	})
	d := daemon()
	d.Healthy, d.NotEligible, d.Notes, d.OtherProxies = false, "the Node is deleted", []string{"it rains"}, []string{"another vmapd"}
	checkText(t, `
Node                 node-1
Version              v1
Backend              nftables (the kernel has all required features)
Up                   100s
Ready                yes
Healthy              no: changes have waited for more than twice the sync period
Load balancers       must not use this node: the Node is deleted
IPv4                 1 service ports, 2 endpoints; last sync 1s ago
IPv6                 0 service ports, 0 endpoints; last sync - ago; a change waits for 3s
IPv6                 the last sync failed: the kernel says no
Service ports        1 forwarded
Connection tracking  7 of at most 1000 entries
Syncs                last 10s ago, 400µs; median of the last 2: 12.3ms, longest 12.3ms
Other proxy          another vmapd
Problem              it rains
Object               Service ns1/bad: spec.clusterIPs[0]: "nonsense" is not an IP address
Sync                 91s ago, 12.3ms: 2 Services and 1 EndpointSlices had changed; compared with the kernel's rules
Sync                 10s ago, 400µs: 0 Services and 1 EndpointSlices had changed; failed: the kernel says no
`, table(t, w.View().Overview(d), true))
}

// Without an API server, names may have any characters.
func TestTextOfObjectsBreaksNoLine(t *testing.T) {
	w := newWorld(modeltest.NewService("ns1/a\nb\x1b[31m").On("172.30.0.41").TCP("\u202e\tx", 80), modeltest.NewService("ns1/\x9b2J").On("no\nne").TCP("", 80))
	text := table(t, w.round(1).Services(status.Filter{}, 0, nil), true)
	if got := strings.Count(text, "\n"); got != 3 {
		t.Errorf("%d lines, want 3:\n%q", got, text)
	}
	for _, c := range []string{"\x1b", "\u202e", "\x9b", "\u009b"} {
		if strings.Contains(text, c) {
			t.Errorf("%q is printed:\n%q", c, text)
		}
	}
}

func TestOnlyChangesAreShown(t *testing.T) {
	w := newWorld(web(), webSlice(), modeltest.NewService("ns1/other").On("172.30.0.42").TCP("", 80))
	at := func(n int) status.Table {
		return w.View().Services(status.Filter{}, 0, nil).Table(false, modeltest.Moment(n))
	}
	w.round(1)
	first := at(2)
	if got := at(60).Changed(first); len(got.Rows) > 0 || len(got.Columns) > 0 {
		t.Errorf("time alone: %+v", got)
	}
	webSlice().Ready("10.0.0.9").Set(w.Builder)
	w.round(3)
	if got := at(61).Changed(first); len(got.Rows) != 1 || got.Rows[0].Cells[1] != "web" {
		t.Errorf("one more endpoint: %+v", got)
	}
}

// 10,000 Services, each with an endpoint.
func bigView(b testing.TB) *status.View {
	b.Helper()
	w := newWorld()
	modeltest.Feed(w.Builder, modeltest.Cluster(10_000, 10))
	return w.round(1)
}
