package informer

import (
	"context"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/kube/client"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// resource is a kind of objects with the functions that read them.
type resource struct {
	name     string // plural, as in URLs
	kind     string
	labels   string // selectors
	fields   string
	spare    bool   // fields only saves traffic: if the server refuses it, it is omitted
	optional string // the consequence, if the server doesn't have it or refuses; "": required
	unseen   string // the consequence, if it can't be read any more

	example runtime.Object // an empty one
	list    func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch   func(context.Context, metav1.ListOptions) (watch.Interface, error)
	counts  reconcile.Change // of one object, for metrics
}

// resources returns the kinds that the proxy of one node reads, by name.
func resources(c *client.Client, node string) []*resource {
	services := newResource[*corev1.Service](c.SlimServices())
	services.labels = "!" + model.LabelServiceProxyName
	// In some clusters most Services are headless.
	services.fields = fields.OneTermNotEqualSelector("spec.clusterIP", corev1.ClusterIPNone).String()
	services.spare = true
	services.unseen = "changes of Services have no effect"
	services.counts = reconcile.Change{Services: 1}

	slices := newResource[*discoveryv1.EndpointSlice](c.SlimEndpointSlices())
	slices.labels = "!" + model.LabelHeadless
	slices.unseen = "connections still go to the endpoints that were known last"
	slices.counts = reconcile.Change{EndpointSlices: 1}

	nodes := newResource[*corev1.Node](c.Nodes())
	nodes.unseen = "changes of the Node have no effect: its addresses, pod ranges, zone and taints"
	nodes.fields = fields.OneTermEqualSelector(metav1.ObjectNameField, node).String()

	cidrs := newResource[*networkingv1.ServiceCIDR](c.ServiceCIDRs())
	cidrs.unseen = "changes of the ranges of cluster IPs have no effect"
	cidrs.optional = "unused cluster IPs will not be dropped" // networking.k8s.io/v1 since 1.33 (KEP-1880)

	return []*resource{slices, nodes, cidrs, services}
}

// newResource returns the kind of T, of which L is a list. client-go passes no object of another kind.
func newResource[T, L runtime.Object](c client.Resource[L]) *resource {
	kind := reflect.TypeFor[T]().Elem()
	return &resource{
		name:    c.Name,
		kind:    kind.Name(),
		example: reflect.New(kind).Interface().(runtime.Object),
		list:    func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return c.List(ctx, o) },
		watch:   c.Watch,
	}
}
