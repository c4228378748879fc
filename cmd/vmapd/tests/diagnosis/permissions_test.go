package diagnosis

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/sync/informer/apitest"
)

// The commands that ask the daemon, and those that read the cluster by themselves in the daemon's pod, have
// no other permissions than the daemon.
func TestCommandsAskForNoMoreThanTheDaemon(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	named := vmapdtest.WebSlice(2, 3)
	named.Endpoints[0].TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "pod-1"}
	p.API.Set(named)
	p.startReady(t)
	for _, args := range []string{
		"doctor", "status", "services", "status web", "status web --rules",
		"explain --from 203.0.113.9 svc/web:tcp", "explain --from 203.0.113.9 172.30.0.10:80", "explain --from node/" + lab.NodeName + " svc/web:tcp",
		"explain --from pod/pod-1 web.default.svc.cluster.local:80", "explain --from 203.0.113.9 " + lab.NodeIP4 + ":30080",
		"explain --from 203.0.113.9 10.0.0.2:8080", "explain --from 203.0.113.9 svc/wbe:80", "explain --from 203.0.113.9 192.168.99.10:80",
	} {
		if out, exit := p.vmapd(t, strings.Fields(args)...); strings.Contains(out, "forbidden") || exit != 0 && !strings.Contains(args, "wbe") {
			t.Errorf("%s: exit code %d: %s", args, exit, out)
		}
	}
	for _, page := range []string{"/statusz", "/metrics"} {
		vmapdtest.WantStatus(t, p.Node, vmapdtest.MetricsURL+page, http.StatusOK)
	}
	if denied := p.API.Denied(); len(denied) > 0 {
		t.Errorf("the manifest's ClusterRole does not grant %v", denied)
	}

	// These have a user's permissions, as a rule. In the daemon's pod they do without the others, and say so.
	p.OwnRules = true
	before := len(p.API.Denied())
	for args, want := range map[string]string{
		"explain --kubeconfig " + p.Kubeconfig() + " --node-name " + lab.NodeName + " --from 203.0.113.9 svc/web:tcp": "forwarded to",
		"preflight --kubeconfig " + p.Kubeconfig() + " --node-name " + lab.NodeName:                                   "read the ConfigMap kube-system/kube-proxy: ",
	} {
		if out, _ := p.vmapdAlone(t, strings.Fields(args)...); !strings.Contains(out, want) {
			t.Errorf("%s: want %q, got: %s", args, want, out)
		}
	}
	for _, a := range p.API.Denied()[before:] {
		if a.Resource != "pods" && a.Resource != "configmaps" {
			t.Errorf("the manifest's ClusterRole does not grant %v", a)
		}
	}
}

// A Service is found in the only namespace that has it, and those in several are listed. While nothing changes, asking
// about one again costs the API server nothing. A Service without endpoints is a state of a node that is well.
func TestStatusOfAService(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	service := func(namespace, name, ip string) {
		p.API.Set(&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec:       corev1.ServiceSpec{ClusterIP: ip, ClusterIPs: []string{ip}, Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}},
		})
	}
	service("shop", "one", "172.30.0.71")
	service("shop", "two", "172.30.0.72")
	service("depot", "two", "172.30.0.73")
	named := vmapdtest.WebSlice(2, 3)
	named.Endpoints[0].TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "pod-1"}
	p.API.Set(named)
	p.startReady(t)
	for name, want := range map[string]string{
		"one": "Service shop/one ", "two": "several namespaces have a service two: depot/two, shop/two; give the namespace", "none": `service "none" not found`,
	} {
		if out, _ := p.vmapd(t, "status", name); !strings.Contains(out, want) {
			t.Errorf("status %s: want %q, got: %s", name, want, out)
		}
	}
	var before int
	for i := range 3 {
		if out, _ := p.vmapd(t, "status", "web"); !strings.Contains(out, "10.0.0.2:8080/tcp pod-1 ") {
			t.Errorf("no pod: %s", out)
		}
		n := len(p.API.Requests(apitest.EndpointSlices))
		if i > 0 && n > before {
			t.Errorf("%d requests of EndpointSlices, and %d before", n, before)
		}
		before = n
	}
	if all := vmapdtest.Overview(t, p.socket); all.Level != "ok" || all.States["rejected"] == 0 {
		t.Errorf("%s: %v", all.Level, all.States)
	}
}
