package manifest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/kube"
)

// object is an API object in the form that the builder takes.
type object struct {
	ref   model.ObjectRef
	file  string
	line  int // where its document begins
	raw   any // the API object, for Load; nil otherwise
	value any // model.Service, model.EndpointSlice, model.Node or model.ServiceCIDR; nil: Load alone reads the kind
}

func (o *object) place() string { return fmt.Sprintf("%s:%d", o.file, o.line) }

// empty returns an object of a type, which is like "v1 Service", for the decoder, or nil if the type is not read.
func empty(t string, all bool) metav1.Object {
	switch t {
	case "v1 Service":
		return new(corev1.Service)
	case "discovery.k8s.io/v1 EndpointSlice":
		return new(discoveryv1.EndpointSlice)
	case "v1 Node":
		return new(corev1.Node)
	case "networking.k8s.io/v1 ServiceCIDR", "networking.k8s.io/v1beta1 ServiceCIDR":
		return new(networkingv1.ServiceCIDR)
	case "v1 Pod":
		if all {
			return new(corev1.Pod)
		}
	}
	return nil
}

// modelled returns what the model needs of an object, or nil if that is nothing.
func modelled(in metav1.Object) any {
	switch in := in.(type) {
	case *corev1.Service:
		return kube.Service(in)
	case *discoveryv1.EndpointSlice:
		return kube.EndpointSlice(in)
	case *corev1.Node:
		return kube.Node(in)
	case *networkingv1.ServiceCIDR:
		return kube.ServiceCIDR(in)
	}
	return nil
}

// set writes the object into the builder.
func (o *object) set(b *model.Builder) {
	switch v := o.value.(type) {
	case model.Service:
		b.SetService(v)
	case model.EndpointSlice:
		b.SetEndpointSlice(v)
	case model.Node:
		b.SetNode(v)
	case model.ServiceCIDR:
		b.SetServiceCIDR(v)
	}
}

// remove removes the object from the builder.
func (o *object) remove(b *model.Builder) {
	switch o.value.(type) {
	case model.Service:
		b.DeleteService(o.ref.NamespacedName)
	case model.EndpointSlice:
		b.DeleteEndpointSlice(o.ref.NamespacedName)
	case model.Node:
		b.DeleteNode(o.ref.Name)
	case model.ServiceCIDR:
		b.DeleteServiceCIDR(o.ref.Name)
	}
}
