package cli

import (
	"sort"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/daemon"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/objects"
	"github.com/vmapd/vmapd/sync/informer/apitest"
	"github.com/vmapd/vmapd/sync/kube/client"
)

// addPods gives a cluster the pod of the ready endpoint and a client.
func addPods(s *apitest.Server) {
	app := map[string]string{"app": "web"}
	pod := func(name, ip string, labels map[string]string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns1", Name: name, Labels: labels},
			Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{
				Name: "main", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
			}}},
			Status: corev1.PodStatus{PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}},
		}
	}
	s.Set(pod("web-1", "10.0.0.2", app))
	s.Set(pod("client", "10.0.0.9", nil))
	for name, service := range map[string]corev1.ServiceSpec{
		"web": {ClusterIP: "172.30.0.41", Selector: app, Ports: []corev1.ServicePort{{
			Name: "http", Port: 80,
			TargetPort: intstr.FromInt32(9999),
		}}},
		"empty": {
			ClusterIP: "172.30.0.43", Selector: map[string]string{"app": "wbe"},
			Ports: []corev1.ServicePort{{Port: 80}},
		},
	} {
		service.ClusterIPs = []string{service.ClusterIP}
		s.Set(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns1", Name: name}, Spec: service})
	}
	s.Set(&discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns1", Name: "web-1",
			Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{
			Name: new("http"), Port: new(int32(9999)),
			Protocol: new(corev1.ProtocolTCP),
		}},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.0.0.2"}, NodeName: new("node-1"), TargetRef: &corev1.ObjectReference{
				Kind: "Pod",
				Name: "web-1",
			}},
		},
	})
}

// The daemon reads what one connection is about, and nothing of other namespaces.
func TestTheDaemonReadsWhatAConnectionIsAbout(t *testing.T) {
	for _, tt := range []struct {
		name, from, to string
		want           string // Services, slices
	}{
		{"a Service by name", "203.0.113.7", "svc/web:http", "ns1/web; ns1/web-1"},
		{"a Service by address", "203.0.113.7", "172.30.0.41:80", "ns1/web; ns1/web-1"},
		{"another proxy's Service", "203.0.113.7", "172.30.0.42:80", "ns1/mesh; ns1/web-1"},
		{"a pod's own address", "203.0.113.7", "10.0.0.2:9999", "; ns1/web-1"},
		{"a pod by name", "pod/web-1", "svc/empty:80", "ns1/empty; ns1/web-1"},
		{"nothing", "203.0.113.7", "203.0.113.9:80", "; "},
		{"a name that is not there", "203.0.113.7", "svc/wbe:80", "; "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newCluster(t)
			addPods(s)
			q, err := names.Query{}.Between(tt.from, tt.to)
			if err != nil {
				t.Fatal(err)
			}
			q.NodeName = "node-1"
			c, err := client.New(s.Config())
			if err != nil {
				t.Fatal(err)
			}
			d, refused, err := objects.Read(t.Context(), c, &q, daemon.ErrNoPods, "node-1")
			if err != nil || refused != nil {
				t.Fatal(err, refused)
			}
			var services, slices []string
			for _, s := range d.Services {
				services = append(services, s.String())
			}
			for _, s := range d.Slices {
				slices = append(slices, s.String())
			}
			sort.Strings(services)
			if got := strings.Join(services, " ") + "; " + strings.Join(slices, " "); got != tt.want {
				t.Errorf("want %q, got %q", tt.want, got)
			}
			for _, q := range s.Requests("") {
				if q.Resource == apitest.Pods || q.Verb == "watch" {
					t.Errorf("%s %s: the daemon has no permission", q.Method, q.URL.Path)
				}
			}
		})
	}
}
