package informer

// Addresses: pods 10.0.0.0/8, cluster IPs 172.30.0.0/16, nodes 192.168.0.0/24 (ours .2).

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	config "k8s.io/component-base/config/v1alpha1"
	"k8s.io/klog/v2"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/model/modeltest/testlog"
	"github.com/vmapd/vmapd/model/nettest"
	"github.com/vmapd/vmapd/sync/informer/apitest"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// patience is how long a test waits. client-go waits a second or two before its first retry,
// and longer each time.
const patience = 90 * time.Second

// TestMain lets more tests run at the same time than there are processors: most of the time
// they wait.
func TestMain(m *testing.M) {
	nettest.Prepare()
	flag.Parse()
	klog.SetLogger(logr.Discard()) // it follows the files of tests that have ended
	if err := flag.Set("test.parallel", "24"); err != nil {
		panic(err)
	}
	m.Run()
}

func service(name, ip string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns1", Name: name},
		Spec: corev1.ServiceSpec{
			ClusterIP: ip, ClusterIPs: []string{ip},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
}

func slice(service string, pods ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns1", Name: service + "-1",
			Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)}},
	}
	for _, pod := range pods {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{pod}})
	}
	return s
}

func node(name, ip string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}},
	}
}

func cidr(name, prefix string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{prefix}},
	}
}

// world is a server and a source that follows it.
type world struct {
	t      *testing.T
	start  time.Time
	server *apitest.Server
	source *Source
	state  *reconcile.State
	logs   *testlog.Log

	stop func() // stops the source and waits for it
}

func newServer(t *testing.T, o apitest.Options) *apitest.Server {
	t.Helper()
	s, err := apitest.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// standardServer has a small cluster.
func standardServer(t *testing.T, o apitest.Options) *apitest.Server {
	t.Helper()
	s := newServer(t, o)
	s.Set(service("web", "172.30.0.41"))
	s.Set(slice("web", "10.180.0.1", "10.180.1.1"))
	s.Set(node("node1", "192.168.0.2"))
	s.Set(cidr("kubernetes", "172.30.0.0/16"))
	return s
}

// forEachServer runs a variant of a test with the standard cluster on each of servers, in
// parallel.
func forEachServer(t *testing.T, variant string, test func(*testing.T, *apitest.Server)) {
	t.Helper()
	for _, tt := range servers {
		name := tt.name
		if variant != "" {
			name += ", " + variant
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, standardServer(t, tt.opts))
		})
	}
}

// whole is the standard cluster as it is seen on node1.
var whole = []string{
	"ns1/web:http at 172.30.0.41:80/tcp: 10.180.0.1:8080 10.180.1.1:8080",
	"node 192.168.0.2",
	"cidr 172.30.0.0/16",
}

func follow(t *testing.T, s *apitest.Server) *world {
	t.Helper()
	return followAs(t, s, &Source{})
}

// followWhole follows the standard cluster, and returns when all of it is watched.
func followWhole(t *testing.T, s *apitest.Server) *world {
	t.Helper()
	w := follow(t, s)
	w.want(whole...)
	w.watching()
	return w
}

// followAs follows by a source with some fields of the test's own.
func followAs(t *testing.T, s *apitest.Server, source *Source) *world {
	t.Helper()
	client, err := Connect(config.ClientConnectionConfiguration{Kubeconfig: kubeconfig(t, s, t.TempDir()), QPS: -1}, "")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, start: time.Now(), server: s, logs: &testlog.Log{},
		state: reconcile.NewState(model.NewBuilder(model.Config{
			NodeName:          "node1",
			NodePortAddresses: model.NodePortAddresses{Primary: true},
		}), 1),
	}
	w.source = source
	source.Client, source.NodeName, source.Log = client, "node1", slog.New(slog.NewTextHandler(w.logs, nil))
	w.stop = testaid.Run(t, func(ctx context.Context) {
		if err := w.source.Run(ctx, w.state); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return w
}

// kubeconfig writes the credentials of now.
func kubeconfig(t *testing.T, s *apitest.Server, dir string) string {
	t.Helper()
	path, err := s.Kubeconfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// view is what matters of a snapshot, as text.
func view(s *model.Snapshot) []string {
	var out []string
	f := s.Family(model.IPv4)
	for sp := range f.ServicePorts() {
		var eps []string
		for _, e := range sp.Endpoints {
			eps = append(eps, e.Addr.String())
		}
		for _, front := range sp.Frontends {
			out = append(out, strings.TrimSpace(fmt.Sprintf("%v at %v: %s", sp.Name, front.VIP, strings.Join(eps, " "))))
		}
	}
	slices.Sort(out)
	for _, a := range f.NodePortAddrs {
		out = append(out, "node "+a.String())
	}
	for _, p := range f.ServiceCIDRs {
		out = append(out, "cidr "+p.String())
	}
	return out
}

// until waits for a condition that a change of the state, a log record or a request makes true.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: did not happen; logged:\n%s\nrequests:\n%s", what, w.logs, w.requests())
		}
	}
}

func (w *world) requests() string {
	var b strings.Builder
	all := w.server.Requests("")
	for _, r := range all[max(0, len(all)-20):] {
		fmt.Fprintf(&b, "%s %s %s?%s\n", r.Time.Format("05.000"), r.Verb, r.Resource, r.URL.RawQuery)
	}
	return b.String()
}

// want waits until the state is complete and looks like this.
func (w *world) want(want ...string) {
	w.t.Helper()
	var got []string
	defer func() {
		if w.t.Failed() {
			w.t.Logf("state (-want +got):\n%s", cmp.Diff(want, got))
		}
	}()
	w.until("state", func() bool {
		s, ok := w.state.Snapshot()
		if !ok {
			return false
		}
		got = view(s)
		return slices.Equal(got, want)
	})
}

// is checks that the state is complete and looks like this now.
func (w *world) is(want ...string) {
	w.t.Helper()
	s, ok := w.state.Snapshot()
	if !ok {
		w.t.Fatal("state is incomplete")
	}
	testaid.Equal(w.t, "state", want, view(s))
}

// incomplete returns the contents of a state that must not be complete yet.
func (w *world) incomplete() []string {
	w.t.Helper()
	if _, ok := w.state.Snapshot(); ok {
		w.t.Fatal("state is complete")
	}
	var out []string
	w.state.Update(reconcile.Change{}, func(b *model.Builder) { out = view(b.Snapshot()) })
	return out
}

// fails waits until it is logged that each of the kinds can't be read.
func (w *world) fails(kinds ...apitest.Resource) {
	w.t.Helper()
	for _, r := range kinds {
		w.until(string(r)+" fail", func() bool { return w.logs.Count("ERROR", "keeping the last known state", "resource="+string(r)) > 0 })
	}
}

// recovers waits until it is logged that each of the kinds can be read again, and checks
// that there was one line about its trouble and one about the end of it, and nothing
// like a storm of requests. A request that met a connection as the server closed it may have one more.
func (w *world) recovers(kinds ...apitest.Resource) {
	w.t.Helper()
	for _, r := range kinds {
		w.until(string(r)+" recover", func() bool {
			return w.logs.Count("INFO", "from the API server again", "resource="+string(r)) > 0
		})
	}
	bad, closing := w.logs.Count("ERROR"), w.logs.Count("ERROR", "http2: client conn")
	good := w.logs.Count("INFO", "from the API server again")
	if bad < len(kinds) || bad-closing > len(kinds) || good != len(kinds) {
		w.t.Errorf("%d errors and %d recoveries, want %d of each:\n%s", bad, good, len(kinds), w.logs)
	}
	w.calm()
}

// calm checks that there are no more requests than those of a start and of a few retries per
// second, as client-go itself makes after a Retry-After.
func (w *world) calm() {
	w.t.Helper()
	for _, r := range everything {
		const begin, perSecond = 20, 2.5
		most := begin + perSecond*time.Since(w.start).Seconds()
		if got := len(w.server.Requests(r)); float64(got) > most {
			w.t.Errorf("%d requests for %s, want at most %.0f:\n%s", got, r, most, w.requests())
		}
	}
}

// watching waits until there is a watch of each resource.
func (w *world) watching() {
	w.t.Helper()
	w.until("watches", func() bool {
		for _, r := range everything {
			if w.server.Watching(r) == 0 {
				return false
			}
		}
		return true
	})
}

var everything = []apitest.Resource{apitest.Services, apitest.EndpointSlices, apitest.Nodes, apitest.ServiceCIDRs}
