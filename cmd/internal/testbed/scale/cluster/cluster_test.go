package cluster

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/kube"
)

func TestParseShape(t *testing.T) {
	if got, err := ParseShape("5000x50"); err != nil || got != (Shape{5000, 50}) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, text := range []string{"5000", "0x1", "1x", "x1", "1x1x1", "1x1000001", "-1x1"} {
		if got, err := ParseShape(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

// build is the snapshot that a node's proxy makes of all objects.
func build(c *Cluster) *model.Snapshot {
	b := model.NewBuilder(model.Config{NodeName: NodeName, NodePortAddresses: model.NodePortAddresses{Primary: true}})
	for o := range c.Objects() {
		switch o := o.(type) {
		case *corev1.Service:
			b.SetService(kube.Service(o))
		case *discoveryv1.EndpointSlice:
			b.SetEndpointSlice(kube.EndpointSlice(o))
		case *corev1.Node:
			b.SetNode(kube.Node(o))
		case *networkingv1.ServiceCIDR:
			b.SetServiceCIDR(kube.ServiceCIDR(o))
		}
	}
	return b.Snapshot()
}

// A proxy must find nothing wrong, or a measurement would leave out what is.
func TestObjectsAreValid(t *testing.T) {
	c := New(Shape{Services: 200, Endpoints: 3})
	for i := range 5000 {
		c.Churn(time.Unix(int64(i), 0))
		c.Replace(time.Unix(int64(i), 0))
	}
	for _, p := range build(c).Problems() {
		t.Error(p)
	}
}
