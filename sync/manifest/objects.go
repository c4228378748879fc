package manifest

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/kube"
)

// Objects are the API objects of one or more manifests, each once. They do not
// change, and may be used by any number of goroutines.
type Objects struct {
	list   []*object // in the order of the files
	byRef  map[model.ObjectRef]*object
	unread map[string]bool // kinds
}

// merge combines the objects of several files. Of two objects with one name the first wins,
// also if its file changed last: a restart must not change the result.
func merge(files []*file) (o *Objects, errs []error) {
	o = &Objects{byRef: make(map[model.ObjectRef]*object), unread: make(map[string]bool)}
	for _, f := range files {
		maps.Copy(o.unread, f.unread)
		for _, obj := range f.objects {
			if first, ok := o.byRef[obj.ref]; ok {
				const text = "%s: %s: is already defined at %s: this one is ignored"
				errs = append(errs, failure(fmt.Sprintf(text, obj.place(), obj.ref, first.place())))
				continue
			}
			o.byRef[obj.ref] = obj
			o.list = append(o.list, obj)
		}
	}
	return o, errs
}

// Len returns the number of objects.
func (o *Objects) Len() int { return len(o.list) }

// Of returns the objects of a type of the model, in the order of the manifests.
func Of[T any](o *Objects) (out []T) {
	for _, obj := range o.list {
		if v, ok := obj.value.(T); ok {
			out = append(out, v)
		}
	}
	return out
}

// Raw returns the API objects of a type, with their kinds, in the order of the manifests. Only those
// of [Load] have them. The types are corev1.Service, discoveryv1.EndpointSlice and corev1.Pod.
func Raw[T any](o *Objects) iter.Seq2[string, *T] {
	return func(yield func(string, *T) bool) {
		for _, obj := range o.list {
			if v, ok := obj.raw.(*T); ok && !yield(obj.ref.Kind, v) {
				return
			}
		}
	}
}

// ApplyTo sets all objects in b.
func (o *Objects) ApplyTo(b *model.Builder) {
	for _, obj := range o.list {
		obj.set(b)
	}
}

// Locate returns the place of p's object as "file:line", where its document begins. It is "" if the object is in
// no manifest.
func (o *Objects) Locate(p model.Problem) string {
	if o == nil || o.byRef[p.Object] == nil {
		return ""
	}
	return o.byRef[p.Object].place()
}

// Unread names the kinds of objects that are not read in one line, or is "". One of them may be a misspelt one of ours.
func (o *Objects) Unread() string {
	if len(o.unread) == 0 {
		return ""
	}
	kinds := strings.Join(slices.Sorted(maps.Keys(o.unread)), ", ")
	return failure("ignored objects of other kinds: " + kinds).Error()
}

// Located is the text of a problem with the place of its object before it; "": the place is not known.
func Located(place string, p model.Problem) string {
	if place == "" {
		return p.Error()
	}
	return place + ": " + p.Error()
}

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
