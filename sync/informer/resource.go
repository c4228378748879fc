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
	"github.com/vmapd/vmapd/sync/kube"
	"github.com/vmapd/vmapd/sync/kube/client"
	"github.com/vmapd/vmapd/sync/kube/slim"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// resource is a kind of objects with the functions that read them.
type resource struct {
	name     string // plural, as in URLs
	group    string // of the API; "": the core group
	labels   string // selectors
	fields   string
	spare    bool   // fields only saves traffic: if the server refuses it, it is omitted
	optional string // the consequence, if the server doesn't have it or refuses; "": required
	unseen   string // the consequence, if it can't be read any more

	example runtime.Object // an empty one
	list    func(context.Context, metav1.ListOptions) (runtime.Object, error)
	one     func(ctx context.Context, version string) (runtime.Object, error) // a list of one object, or of none
	watch   func(context.Context, metav1.ListOptions) (watch.Interface, error)
	read    func(runtime.Object) *object // nil: another kind
	remove  func(*model.Builder, model.NamespacedName)
	removal reconcile.Change // of a deletion, for metrics
}

// resources returns the kinds that the proxy of one node reads.
func resources(c *client.Client, node string) []*resource {
	kubernetes := model.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "kubernetes"} // each cluster has it
	services := newResource(c.SlimServices(), kubernetes, readService, (*model.Builder).DeleteService)
	services.labels = "!" + model.LabelServiceProxyName
	// In some clusters most Services are headless.
	services.fields = fields.OneTermNotEqualSelector("spec.clusterIP", corev1.ClusterIPNone).String()
	services.spare = true
	services.unseen = "changes of Services have no effect"
	services.removal = reconcile.Change{Services: 1}

	slices := newResource(c.SlimEndpointSlices(), kubernetes, readEndpointSlice, (*model.Builder).DeleteEndpointSlice)
	slices.labels = "!" + model.LabelHeadless
	slices.group = discoveryv1.GroupName
	slices.unseen = "connections still go to the endpoints that were known last"
	slices.removal = reconcile.Change{EndpointSlices: 1}

	nodes := newResource(c.Nodes(), model.NamespacedName{Name: node}, readNode,
		func(b *model.Builder, n model.NamespacedName) { b.DeleteNode(n.Name) })
	nodes.unseen = "changes of the Node have no effect: its addresses, pod ranges, zone and taints"
	nodes.fields = fields.OneTermEqualSelector(metav1.ObjectNameField, node).String()

	cidrs := newResource(c.ServiceCIDRs(), model.NamespacedName{Name: kubernetes.Name}, readServiceCIDR,
		func(b *model.Builder, n model.NamespacedName) { b.DeleteServiceCIDR(n.Name) })
	cidrs.group = networkingv1.GroupName
	cidrs.unseen = "changes of the ranges of cluster IPs have no effect"
	cidrs.optional = "unused cluster IPs will not be dropped" // networking.k8s.io/v1 since 1.33 (KEP-1880)

	return []*resource{services, slices, nodes, cidrs}
}

func readService(in *slim.Service, o *object) {
	o.change = reconcile.Change{Services: 1}
	o.set = func(b *model.Builder) { b.SetService(in.Model) }
}

func readEndpointSlice(in *slim.EndpointSlice, o *object) {
	o.change = reconcile.Change{EndpointSlices: 1, Trigger: in.Trigger}
	if in.Model.AddressType == string(discoveryv1.AddressTypeIPv6) {
		o.change.Family = model.IPv6
	}
	o.set = func(b *model.Builder) { b.SetEndpointSlice(in.Model) }
	o.release = in.Release
}

func readNode(in *corev1.Node, o *object) {
	n := kube.Node(in)
	o.set = func(b *model.Builder) { b.SetNode(n) }
}

func readServiceCIDR(in *networkingv1.ServiceCIDR, o *object) {
	c := kube.ServiceCIDR(in)
	o.set = func(b *model.Builder) { b.SetServiceCIDR(c) }
}

func newResource[T kubeObject, L runtime.Object](
	c client.Resource[L], one model.NamespacedName, read func(T, *object),
	remove func(*model.Builder, model.NamespacedName),
) *resource {
	var example T
	return &resource{
		name:    c.Name,
		example: reflect.New(reflect.TypeOf(example).Elem()).Interface().(runtime.Object),
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return c.List(ctx, o)
		},
		// A proxy has the right to list, and usually not that to get one.
		one: func(ctx context.Context, version string) (runtime.Object, error) {
			o := client.Named(one.Name)
			o.ResourceVersion = version
			return c.In(one.Namespace).List(ctx, o)
		},
		watch: c.Watch,
		read: func(in runtime.Object) *object {
			t, ok := in.(T)
			if !ok {
				return nil
			}
			out := &object{Object: nothing, name: model.NamespacedName{Namespace: t.GetNamespace(), Name: t.GetName()}}
			out.version, _ = parseVersion(t.GetResourceVersion())
			read(t, out)
			return out
		},
		remove: remove,
	}
}

// kubeObject has the methods that all our kinds have.
type kubeObject interface {
	runtime.Object
	metav1.Object
}
