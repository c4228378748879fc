package informer

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/kube"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// notOurs deselects what no proxy or another proxy serves, already on the server. The
// EndpointSlice controller copies a Service's labels, and marks the slices of
// headless ones.
const notOurs = "!" + model.LabelHeadless + ",!" + model.LabelServiceProxyName

// resource is a kind of objects and what is done with them.
type resource struct {
	name     string // plural, as in URLs
	example  runtime.Object
	labels   string // selectors
	fields   string
	spare    bool // fields only saves traffic: a server that refuses it is asked without
	optional bool // not every server has it, or allows to read it

	list   func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch  func(context.Context, metav1.ListOptions) (watch.Interface, error)
	change func(any) reconcile.Change // what the change of an object, nil if it is deleted, counts as
	strip  func(any)
	set    func(*model.Builder, any)
	remove func(*model.Builder, model.NamespacedName)
}

// resources are what the proxy of one node reads.
func resources(c kubernetes.Interface, node string) []*resource {
	services := newResource("services", c.CoreV1().Services(metav1.NamespaceAll), new(corev1.Service), kube.StripService,
		func(b *model.Builder, s *corev1.Service) { b.SetService(kube.Service(s)) },
		(*model.Builder).DeleteService)
	services.labels = notOurs
	// Most Services of some clusters are headless, and not all of them are labelled so.
	services.fields = fields.OneTermNotEqualSelector("spec.clusterIP", corev1.ClusterIPNone).String()
	services.spare = true
	services.change = func(any) reconcile.Change { return reconcile.Change{Services: 1} }

	slices := newResource("endpointslices", c.DiscoveryV1().EndpointSlices(metav1.NamespaceAll), new(discoveryv1.EndpointSlice), kube.StripEndpointSlice,
		func(b *model.Builder, s *discoveryv1.EndpointSlice) { b.SetEndpointSlice(kube.EndpointSlice(s)) },
		(*model.Builder).DeleteEndpointSlice)
	slices.labels = notOurs
	slices.change = func(obj any) reconcile.Change {
		c := reconcile.Change{EndpointSlices: 1}
		if s, ok := obj.(*discoveryv1.EndpointSlice); ok {
			c.Trigger = kube.Triggered(s)
			if s.AddressType == discoveryv1.AddressTypeIPv6 {
				c.Family = model.IPv6
			}
		}
		return c
	}

	nodes := newResource("nodes", c.CoreV1().Nodes(), new(corev1.Node), kube.StripNode,
		func(b *model.Builder, n *corev1.Node) { b.SetNode(kube.Node(n)) },
		func(b *model.Builder, n model.NamespacedName) { b.DeleteNode(n.Name) })
	nodes.fields = fields.OneTermEqualSelector(metav1.ObjectNameField, node).String()

	cidrs := newResource("servicecidrs", c.NetworkingV1().ServiceCIDRs(), new(networkingv1.ServiceCIDR), kube.StripServiceCIDR,
		func(b *model.Builder, c *networkingv1.ServiceCIDR) { b.SetServiceCIDR(kube.ServiceCIDR(c)) },
		func(b *model.Builder, n model.NamespacedName) { b.DeleteServiceCIDR(n.Name) })
	cidrs.optional = true // networking.k8s.io/v1 has it since 1.33 (KEP-1880)

	return []*resource{services, slices, nodes, cidrs}
}

// typedClient is what client-go's client of each kind has.
type typedClient[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func newResource[T, L runtime.Object](
	name string, c typedClient[L], example T, strip func(T),
	set func(*model.Builder, T), remove func(*model.Builder, model.NamespacedName),
) *resource {
	return &resource{
		name:    name,
		example: example,
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return c.List(ctx, o)
		},
		watch:  c.Watch,
		change: func(any) reconcile.Change { return reconcile.Change{} },
		strip: func(obj any) {
			// What is no T is the note of a deletion that was missed; its object has
			// been stripped before.
			if t, ok := obj.(T); ok {
				strip(t)
			}
		},
		set:    func(b *model.Builder, obj any) { set(b, obj.(T)) },
		remove: remove,
	}
}
