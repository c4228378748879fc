package traffic

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model"
)

// outlierService is a Service web of a namespace, in both families, with pods of the lab as endpoints.
type outlierService struct {
	namespace string
	number    int               // the last one of its cluster IPs
	port      uint16            // of the endpoints
	nodes     map[string]string // by pod
	spec      string            // more lines
}

// vips are its addresses, by family.
func (s outlierService) vips() []netip.AddrPort {
	var list []netip.AddrPort
	for _, a := range []string{"172.30.0.%d:80", "[fd00:172:30::%d]:80"} {
		list = append(list, netip.MustParseAddrPort(fmt.Sprintf(a, s.number)))
	}
	return list
}

// vip is the one for a client.
func (s outlierService) vip(client netip.Addr) netip.AddrPort {
	return s.vips()[model.FamilyOf(client)]
}

// manifest are its objects.
func (s outlierService) manifest(w *lab.World) string {
	var text strings.Builder
	fmt.Fprintf(&text, `apiVersion: v1
kind: Service
metadata: {name: web, namespace: %[1]s, creationTimestamp: "2026-01-01T00:00:00Z"}
spec:
  clusterIPs: ["172.30.0.%[2]d", "fd00:172:30::%[2]d"]
  ipFamilies: [IPv4, IPv6]
  ports: [{name: http, protocol: TCP, port: 80}, {name: dns, protocol: UDP, port: 80}]
%[3]s
`, s.namespace, s.number, s.spec)
	for _, family := range []string{"IPv4", "IPv6"} {
		fmt.Fprintf(&text, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-%[1]s, namespace: %[2]s, labels: {kubernetes.io/service-name: web}}
addressType: %[3]s
ports: [{name: http, protocol: TCP, port: %[4]d}, {name: dns, protocol: UDP, port: %[4]d}]
endpoints:
`, strings.ToLower(family), s.namespace, family, s.port)
		for _, pod := range w.Pods() {
			if node := s.nodes[pod.Name()]; node != "" {
				at := pod.IP4
				if family == "IPv6" {
					at = pod.IP6
				}
				fmt.Fprintf(&text, "- {addresses: [%q], nodeName: %s, conditions: {ready: true}}\n", at, node)
			}
		}
	}
	return text.String()
}

// detect starts vmapd with outlier detection for Services.
func detect(t *testing.T, w *lab.World, services ...outlierService) *vmapdtest.Process {
	t.Helper()
	dir := t.TempDir()
	for _, s := range services {
		vmapdtest.ReplaceFile(t, filepath.Join(dir, s.namespace+".yaml"), s.manifest(w))
	}
	p := vmapdtest.StartReady(t, w.Node, "--from", dir, "--hostname-override", lab.NodeName, "--socket=", "--outlier-detection")
	return p
}

// ejected returns how many endpoints the metric says are ejected.
func ejected(t *testing.T, w *lab.World) (n int) {
	t.Helper()
	all := (&vmapdtest.Cluster{World: w}).Scrape(t)
	for _, family := range []string{"IPv4", "IPv6"} {
		of, ok := vmapdtest.Value(all, "vmapd_ejected_endpoints", "ip_family="+family)
		if !ok {
			t.Fatal("no metric vmapd_ejected_endpoints")
		}
		n += int(of)
	}
	return n
}

// feedPods has nft do something in pods.
func feedPods(t *testing.T, w *lab.World, rules string, pods ...string) {
	t.Helper()
	for _, name := range pods {
		pod, err := w.Pod(name)
		if err != nil {
			t.Fatal(err)
		}
		vmapdtest.Feed(t, pod.Namespace, rules, "nft", "-f", "-")
	}
}

const (
	dies = `table inet dead {
		chain in { type filter hook prerouting priority -400; policy drop; }
		chain out { type filter hook output priority -400; policy drop; }
	}`
	comesBack = "delete table inet dead"
)

// A Node dies: its connections are led to other Nodes, those that clients have begun included, flows of UDP, and
// clients that affinity has led there. It comes back: so do its connections.
func TestANodeDiesAndComesBack(t *testing.T) {
	t.Parallel()
	vmapdtest.NeedNFT(t)
	w := labtest.With(t, lab.Config{Pods: 4, Ports: []uint16{8080}})
	here := lab.NodeName
	web := outlierService{namespace: "ns1", number: 41, port: 8080, nodes: map[string]string{"pod-1": here, "pod-2": here, "pod-3": "node-2"}}
	witness := outlierService{namespace: "ns2", number: 42, port: 8080, nodes: map[string]string{"pod-2": here, "pod-4": "node-2"}}
	sticky := outlierService{
		namespace: "ns3", number: 43, port: 8080, nodes: map[string]string{"pod-1": here, "pod-3": "node-2"},
		spec: "  sessionAffinity: ClientIP",
	}
	detect(t, w, web, witness, sticky)
	var n, returned atomic.Int64
	load := lab.Load{Rate: 100, Timeout: vmapdtest.Patience, Limit: 2000, Ask: func(ctx context.Context) (lab.Answer, error) {
		a, err := w.Client.Ask(ctx, "tcp", web.vips()[n.Add(1)%2])
		if a.Pod == "pod-3" {
			returned.Add(1)
		}
		return a, err
	}}
	flows := udpFlows(t, w, web, "pod-3")
	clients := stickyClients(t, w, sticky, "pod-3")

	feedPods(t, w, dies, "pod-3", "pod-4")
	dying, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	died := load.Run(dying)
	// A client sends its first packet again after 1 s, 3 s and, on a machine that is busy, 7 s.
	if t.Logf("it died: %v", &died); died.Lost() > 0 {
		t.Error("connections were lost when it died")
	}
	vmapdtest.Eventually(t, func() string {
		if n := ejected(t, w); n != 12 {
			return fmt.Sprintf("%d endpoints are ejected, want 12: one for each Service, protocol and family", n)
		}
		return ""
	})
	for _, c := range flows {
		vmapdtest.WaitUntil(t, "a client of UDP gets another server", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), vmapdtest.Silence)
			defer cancel()
			a, err := c.Ask(ctx)
			return err == nil && a.Pod != "pod-3"
		})
	}
	for _, from := range clients {
		if a, err := w.Client.AskFrom(t.Context(), from, "tcp", sticky.vip(from)); err != nil || a.Pod != "pod-1" {
			t.Errorf("with affinity, %v is answered by %q, %v", from, a.Pod, err)
		}
	}
	if testing.Short() {
		return
	}
	returned.Store(0)
	feedPods(t, w, comesBack, "pod-3", "pod-4")
	stop := load.Start()
	vmapdtest.WaitUntil(t, "its connections return", func() bool { return returned.Load() > 10 })
	came := stop()
	// It is asked each 10 s, for 1 s.
	if t.Logf("it came back: %v", &came); came.Lost() > 0 || came.Elapsed > 2*vmapdtest.Patience {
		t.Error("connections were lost when it came back, or that took too long")
	}
}

// udpFlows opens flows of UDP in both families, each from one port, until each has one to a pod, and returns these.
func udpFlows(t *testing.T, w *lab.World, s outlierService, pod string) (list []*lab.Conn) {
	t.Helper()
	for _, vip := range s.vips() {
		vmapdtest.WaitUntil(t, "a flow goes to "+pod, func() bool {
			c, err := w.Client.Dial(t.Context(), "udp", vip)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			a, err := c.Ask(t.Context())
			if a.Pod == pod {
				list = append(list, c)
			}
			return err == nil && a.Pod == pod
		})
	}
	return list
}

// stickyClients returns a client of each family whom affinity leads to a pod.
func stickyClients(t *testing.T, w *lab.World, s outlierService, pod string) (list []netip.Addr) {
	t.Helper()
	for _, f := range model.Families {
		all := clientAddrs(t, w, f, 20)
		i := slices.IndexFunc(all, func(from netip.Addr) bool {
			a, err := w.Client.AskFrom(t.Context(), from, "tcp", s.vip(from))
			if err != nil {
				t.Error(err)
			}
			return a.Pod == pod
		})
		if i < 0 {
			t.Fatalf("none of 20 clients goes to %s", pod)
		}
		list = append(list, all[i])
	}
	return list
}
