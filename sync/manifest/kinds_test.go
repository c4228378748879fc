package manifest

import (
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmapd/vmapd/model"
)

// Each kind that is read gets into a snapshot, and out of it.
func TestEveryKindComesAndGoes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "all.yaml")
	write(t, path, `apiVersion: v1
kind: Service
metadata: {name: web, namespace: ns1}
spec: {clusterIPs: [172.30.0.41], ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: ns1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.0.0.2]}]
---
apiVersion: v1
kind: Node
metadata: {name: node-1}
status: {addresses: [{type: InternalIP, address: 192.168.0.2}]}
---
apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: kubernetes}
spec: {cidrs: [172.30.0.0/16]}
`)
	o, _, err := Load([]string{path})
	if err != nil {
		t.Fatal(err)
	}
	b := model.NewBuilder(model.Config{NodeName: "node-1"})
	look := func() (ports, endpoints, addrs, cidrs int) {
		s := b.Snapshot().Family(model.IPv4)
		for sp := range s.ServicePorts() {
			endpoints += len(sp.Endpoints)
		}
		return s.NumServicePorts(), endpoints, len(s.NodeAddrs), len(s.ServiceCIDRs)
	}
	o.ApplyTo(b)
	if ports, endpoints, addrs, cidrs := look(); ports != 1 || endpoints != 1 || addrs != 1 || cidrs != 1 {
		t.Errorf("%d service ports, %d endpoints, %d addresses and %d ranges, want one of each", ports, endpoints, addrs, cidrs)
	}
	if n := len(Of[model.Service](o)) + len(Of[model.EndpointSlice](o)); n != 2 {
		t.Errorf("%d objects of the model, want 2", n)
	}
	for kind, raw := range Raw[corev1.Service](o) {
		if kind != "Service" || raw.Name != "web" {
			t.Errorf("the object is %s %s", kind, raw.Name)
		}
	}
	for _, obj := range o.list {
		obj.remove(b)
	}
	// The last known addresses of a Node stay.
	if ports, endpoints, _, cidrs := look(); ports+endpoints+cidrs != 0 || b.Snapshot().Node().Known {
		t.Errorf("%d service ports, %d endpoints and %d ranges are left", ports, endpoints, cidrs)
	}
}
