package names

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// Addresses: pods 10.0.0.0/8, cluster IPs 172.30.0.0/16, nodes 192.168.0.0/24, load-balancer
// addresses 192.168.98.0/24, outside 203.0.113.0/24, and IPv6 twins.

func name(s string) model.NamespacedName {
	namespace, n, _ := strings.Cut(s, "/")
	return model.NamespacedName{Namespace: namespace, Name: n}
}

// pod is a pod of the namespace shop.
func pod(name, node string, addrs ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{NodeName: node}}
	for _, a := range addrs {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a})
	}
	return p
}

// directory is a cluster with two nodes and the namespaces shop and test.
func directory() *Directory {
	d := &Directory{
		Nodes: []model.Node{
			{Name: "node-1", Addresses: []string{"192.168.0.2", "fd00:192:168::2"}},
			{Name: "node-2", Addresses: []string{"192.168.0.3", "fd00:192:168::3"}},
		},
		Services: []ServiceObject{
			{Service: model.Service{
				NamespacedName: name("shop/frontend"), Type: "LoadBalancer", ClusterIPs: []string{"172.30.0.1", "fd00:172:30::1"},
				Ports:   []model.Port{{Name: "http", Port: 80, NodePort: 30080}, {Name: "dns", Port: 53, Protocol: "UDP"}},
				Ingress: []model.Ingress{{IP: "192.168.98.1"}, {IP: "192.168.98.2"}},
			}},
			{Service: model.Service{NamespacedName: name("shop/one"), ClusterIPs: []string{"172.30.0.2"}, Ports: []model.Port{{Port: 53, Protocol: "UDP"}}}},
			{Service: model.Service{NamespacedName: name("shop/both"), ClusterIPs: []string{"172.30.0.3"}, Ports: []model.Port{{Name: "a", Port: 1}}}},
			{Service: model.Service{NamespacedName: name("test/both"), ClusterIPs: []string{"172.30.0.4"}, Ports: []model.Port{{Name: "a", Port: 1}}}},
			{Service: model.Service{NamespacedName: name("shop/db"), ClusterIPs: []string{"None"}, Ports: []model.Port{{Name: "sql", Port: 5432}}}},
			{Service: model.Service{NamespacedName: name("shop/six"), ClusterIPs: []string{"fd00:172:30::5"}, Ports: []model.Port{{Port: 80}}}},
		},
		Slices: []SliceObject{{
			EndpointSlice: model.EndpointSlice{
				NamespacedName: name("shop/db-1"), Labels: map[string]string{model.LabelServiceName: "db"}, AddressType: "IPv4",
				Endpoints: []model.SliceEndpoint{{Addresses: []string{"10.2.0.5"}, NodeName: "node-2"}},
			},
			Places: []Place{{Pod: name("shop/db-0")}},
		}},
		Pods: []*corev1.Pod{
			pod("web-1", "node-1", "10.1.0.1", "fd00:10:1::1"), pod("web-2", "node-2", "10.2.0.1", "fd00:10:2::1"),
			pod("host", "node-2", "192.168.0.3"), pod("done", "node-2"), pod("new", ""),
		},
	}
	d.Pods[2].Spec.HostNetwork = true
	d.Pods[3].Status.Phase = corev1.PodSucceeded
	return d
}

func TestResolve(t *testing.T) {
	for _, tt := range []struct {
		name, from, to string
		change         func(*Query)
		want           string
	}{
		{"addresses", "203.0.113.7", "172.30.0.1:80", nil, "203.0.113.7 -> 172.30.0.1:80/tcp on default"},
		{"the family follows from the client", "fd00:10:1::1", "svc/frontend:http", nil, "fd00:10:1::1 -> [fd00:172:30::1]:80/tcp on default"},
		{"and from the Service", "pod/web-1", "svc/six", nil, "fd00:10:1::1 -> [fd00:172:30::5]:80/tcp on node-1"},
		{"the Service's first, if both are possible", "pod/web-1", "svc/frontend:http", nil, "10.1.0.1 -> 172.30.0.1:80/tcp on node-1"},
		{"or the wanted one", "pod/web-1", "svc/frontend:http", func(q *Query) { q.Family = "IPv6" }, "fd00:10:1::1 -> [fd00:172:30::1]:80/tcp on node-1"},
		{"the wanted one is missing", "pod/web-1", "svc/one", func(q *Query) { q.Family = "IPv6" }, "pod shop/web-1 10.1.0.1, fd00:10:1::1 and Service shop/one 172.30.0.2 have no IPv6 in common"},
		{"none in common", "203.0.113.7", "svc/six", nil, "203.0.113.7 and Service shop/six fd00:172:30::5 have no IP family in common"},
		{"a process of the node", "node", "svc/one", nil, "node -> 172.30.0.2:53/udp on default"},
		{"a process of another node", "node/node-2", "svc/one", nil, "node 192.168.0.3 -> 172.30.0.2:53/udp on node-2"},
		{"seen from a node", "pod/web-1", "svc/one", func(q *Query) { q.NodeName = "node-2" }, "10.1.0.1 -> 172.30.0.2:53/udp on node-2"},
		{"a pod in the node's network", "pod/host", "svc/one", nil, "node 192.168.0.3 -> 172.30.0.2:53/udp on node-2"},
		{"a pod that is only known as an endpoint", "pod/db-0", "svc/one", nil, "10.2.0.5 -> 172.30.0.2:53/udp on node-2"},
		{"a name in DNS", "203.0.113.7", "frontend.shop.svc.cluster.local:http", nil, "203.0.113.7 -> 172.30.0.1:80/tcp on default"},
		{"a short name", "203.0.113.7", "frontend.shop:53", nil, "203.0.113.7 -> 172.30.0.1:53/udp on default"},
		{"with a dot at its end", "203.0.113.7", "frontend.shop.svc.:53", nil, "203.0.113.7 -> 172.30.0.1:53/udp on default"},
		{"a headless Service", "203.0.113.7", "svc/db:sql", nil, "Service shop/db has no cluster IP, as it is headless or an ExternalName: DNS returns other addresses, and no proxy serves it; name a pod, as in pod/NAME:PORT"},
		{"a port of a node", "203.0.113.7", "node/node-2:30080", nil, "203.0.113.7 -> 192.168.0.3:30080/tcp on node-2"},
		{"a port that the Service lacks", "203.0.113.7", "svc/frontend:81", nil, "203.0.113.7 -> 172.30.0.1:81/tcp on default"},
		{"a name that no port has", "203.0.113.7", "svc/frontend:https", nil, `"svc/frontend:https" names no port of Service shop/frontend; its ports: "http" (80/tcp), "dns" (53/udp)`},
		{"which port?", "203.0.113.7", "svc/frontend", nil, `"svc/frontend" names no port of Service shop/frontend; its ports: "http" (80/tcp), "dns" (53/udp)`},
		{"in two namespaces", "203.0.113.7", "svc/both", nil, "several namespaces have a service both: shop/both, test/both; give the namespace (-n), or service/NAMESPACE/NAME"},
		{"in the destination's", "203.0.113.7", "test/both", nil, "203.0.113.7 -> 172.30.0.4:1/tcp on default"},
		{"in the given one", "203.0.113.7", "svc/both", func(q *Query) { q.Namespace = "test" }, "203.0.113.7 -> 172.30.0.4:1/tcp on default"},
		{"not in the given one", "203.0.113.7", "svc/frontend:80", func(q *Query) { q.Namespace = "test" }, "service \"frontend\" not found in namespace test"},
		{"a mistake", "203.0.113.7", "svc/fronted:80", nil, "service \"fronted\" not found"},
		{"a mistake in a node", "node/node-7", "svc/one", nil, "--from: node \"node-7\" not found; the nodes: node-1, node-2"},
		{"a mistake in a pod", "pod/web-3", "svc/one", nil, "--from: pod \"web-3\" not found"},
		{"a pod without permission", "pod/client", "svc/one", nil, "--from: pod \"client\" not found (only pods that are endpoints of Services are known: forbidden)"},
		{"a pod that has ended", "pod/done", "svc/one", nil, "--from: pod shop/done has no address"},
		{"a pod without a node", "pod/new", "svc/one", nil, "--from: pod shop/new has no address"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := Query{Default: "default"}
			var err error
			if q.From, err = ParseSource(tt.from); err != nil {
				t.Fatal(err)
			}
			if q.To, err = ParseDestination(tt.to); err != nil {
				t.Fatal(err)
			}
			if tt.change != nil {
				tt.change(&q)
			}
			d := directory()
			if strings.HasSuffix(tt.want, "forbidden)") {
				d.NoPods = errors.New("forbidden")
			}
			a, err := d.Resolve(q)
			got := fmt.Sprintf("%v -> %v/%v on %s", a.Source, a.Dest, a.Protocol, a.NodeName)
			if a.Node {
				got = "node " + got
			}
			got = strings.ReplaceAll(got, "node invalid IP", "node")
			if err != nil {
				got = err.Error()
			}
			testaid.Equal(t, tt.from+" to "+tt.to, tt.want, got)
		})
	}
}
