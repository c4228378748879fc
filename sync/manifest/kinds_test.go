package manifest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/kube"
)

// Each kind that is read gets into a snapshot, and out of it.
func TestEveryKindComesAndGoes(t *testing.T) {
	o, _, err := Load([]string{"testdata/all.yaml"})
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
	if raw := Of[*corev1.Service](o); len(raw) != 1 || raw[0].Name != "web" {
		t.Errorf("the Services are %v, want web", raw)
	}
	for _, obj := range o.list {
		kube.Delete(b, obj.ref)
	}
	// The last known addresses of a Node stay.
	if ports, endpoints, _, cidrs := look(); ports+endpoints+cidrs != 0 || b.Snapshot().Node.Known {
		t.Errorf("%d service ports, %d endpoints and %d ranges are left", ports, endpoints, cidrs)
	}
}
