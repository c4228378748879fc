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
