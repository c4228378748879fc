package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/kube"
)

// Objects are the API objects of one or more manifests, each once. They do not
// change, and may be used by any number of goroutines.
type Objects struct {
	list   []*object // in the order of the files
	byRef  map[model.ObjectRef]*object
	unread map[string]bool // kinds
	errs   []error         // in the files
}

// merge combines the objects of several files. Of two objects with one name the first wins,
// also if its file changed last: a restart must not change the result.
func merge(files []*file) *Objects {
	o := &Objects{byRef: map[model.ObjectRef]*object{}, unread: map[string]bool{}}
	var twice []error
	for _, f := range files {
		maps.Copy(o.unread, f.unread)
		o.errs = append(o.errs, f.errs...)
		for _, obj := range f.objects {
			if first := o.byRef[obj.ref]; first != nil {
				const text = "%s: %s: is already defined at %s: this one is ignored"
				twice = append(twice, failure(fmt.Sprintf(text, obj.place, obj.ref, first.place)))
				continue
			}
			o.byRef[obj.ref] = obj
			o.list = append(o.list, obj)
		}
	}
	o.errs = append(o.errs, twice...)
	return o
}

// keep adds the objects of others that o lacks.
func (o *Objects) keep(others *Objects) {
	for _, obj := range others.list {
		if o.byRef[obj.ref] == nil {
			o.byRef[obj.ref] = obj
			o.list = append(o.list, obj)
		}
	}
}

// Len returns the number of objects.
func (o *Objects) Len() int { return len(o.list) }

// Of returns the objects of a kind in the order of the manifests: T is as *[corev1.Node].
func Of[T any](o *Objects) (out []T) {
	for _, obj := range o.list {
		if v, ok := obj.raw.(T); ok {
			out = append(out, v)
		}
	}
	return out
}

// ApplyTo sets all objects in b.
func (o *Objects) ApplyTo(b *model.Builder) {
	for _, obj := range o.list {
		kube.Set(b, obj.raw)
	}
}

// Located is the text of a problem. Before it is the place of its object, as "file:line" or "file:line items[0]",
// if the object is in a manifest.
func (o *Objects) Located(p model.Problem) string {
	if o.byRef[p.Object] == nil {
		return p.Error()
	}
	return o.byRef[p.Object].place + ": " + p.Error()
}

// Unread names the kinds of objects that are not read in one line, or is "". One of them may be a misspelt one of ours.
func (o *Objects) Unread() string {
	if len(o.unread) == 0 {
		return ""
	}
	kinds := strings.Join(slices.Sorted(maps.Keys(o.unread)), ", ")
	return failure("ignored objects of other kinds: " + kinds).Error()
}

// kinds are empty objects of those that are read, by apiVersion and kind.
var kinds = map[string]kubeObject{
	"v1 Service":                            &corev1.Service{},
	"v1 Node":                               &corev1.Node{},
	"v1 Pod":                                &corev1.Pod{}, // for people who ask why
	"discovery.k8s.io/v1 EndpointSlice":     &discoveryv1.EndpointSlice{},
	"networking.k8s.io/v1 ServiceCIDR":      &networkingv1.ServiceCIDR{},
	"networking.k8s.io/v1beta1 ServiceCIDR": &networkingv1.ServiceCIDR{},
}

type kubeObject interface {
	runtime.Object
	metav1.Object
}

// object is an API object.
type object struct {
	ref   model.ObjectRef
	place string // "file:line", where its document begins, and the item of a List
	raw   any
}
