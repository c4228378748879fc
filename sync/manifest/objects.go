package manifest

import (
	"fmt"
	"iter"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/vmapd/vmapd/model"
)

// Objects are the API objects of one or more manifests, each once. They do not
// change, and may be used by any number of goroutines.
type Objects struct {
	// Ignored counts objects of kinds that the proxy doesn't read, by apiVersion and kind:
	// "apps/v1 Deployment".
	Ignored map[string]int

	list  []*object // in the order of the files
	byRef map[model.ObjectRef]*object

	mu   sync.Mutex // guards the tree that Locate used last
	last *document
	tree []*yaml.Node
}

// merge combines the objects of several files. Of two objects with one name the first wins,
// also if its file changed last: a restart must not change the result.
func merge(files []*file) (*Objects, []Error) {
	o := &Objects{Ignored: make(map[string]int), byRef: make(map[model.ObjectRef]*object)}
	var errs []Error
	for _, f := range files {
		for what, n := range f.ignored {
			o.Ignored[what] += n
		}
		for _, obj := range f.objects {
			if first, ok := o.byRef[obj.ref]; ok {
				errs = append(errs, Error{
					File: f.name, Line: obj.line, Object: obj.ref,
					Message: fmt.Sprintf("is already defined at %s: this one is ignored", first.place()),
				})
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

// Services returns the Services in the order of the manifests.
func (o *Objects) Services() []model.Service { return collect[model.Service](o) }

// EndpointSlices returns the EndpointSlices in the order of the manifests.
func (o *Objects) EndpointSlices() []model.EndpointSlice { return collect[model.EndpointSlice](o) }

// Nodes returns the Nodes in the order of the manifests.
func (o *Objects) Nodes() []model.Node { return collect[model.Node](o) }

// ServiceCIDRs returns the ServiceCIDRs in the order of the manifests.
func (o *Objects) ServiceCIDRs() []model.ServiceCIDR { return collect[model.ServiceCIDR](o) }

// Raw returns the API objects of a type, with their kinds, in the order of the manifests. Only those
// of [LoadAll] have them. The types are corev1.Service, discoveryv1.EndpointSlice, corev1.Pod and
// kube.Workload.
func Raw[T any](o *Objects) iter.Seq2[string, *T] {
	return func(yield func(string, *T) bool) {
		for _, obj := range o.list {
			if v, ok := obj.raw.(*T); ok && !yield(obj.ref.Kind, v) {
				return
			}
		}
	}
}

func collect[T any](o *Objects) []T {
	var out []T
	for _, obj := range o.list {
		if v, ok := obj.value.(T); ok {
			out = append(out, v)
		}
	}
	return out
}

// ApplyTo sets all objects in b.
func (o *Objects) ApplyTo(b *model.Builder) {
	for _, obj := range o.list {
		obj.set(b)
	}
}

// builder has the methods of a [model.Builder] that this package calls.
type builder interface {
	SetService(model.Service)
	DeleteService(model.NamespacedName)
	SetEndpointSlice(model.EndpointSlice)
	DeleteEndpointSlice(model.NamespacedName)
	SetNode(model.Node)
	DeleteNode(name string)
	SetServiceCIDR(model.ServiceCIDR)
	DeleteServiceCIDR(name string)
}

// Locate returns the place of p's field as "file:line". If the manifest does not have the
// field, it is the place of its nearest parent, and if p has no field, that of the object.
// It is "" if the object is in no manifest.
//
// To save memory, lines are not kept: Locate parses the object's document again.
func (o *Objects) Locate(p model.Problem) string {
	obj, ok := o.byRef[p.Object]
	if !ok {
		return ""
	}
	if p.Field == "" {
		return obj.place()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	// Problems are sorted by name: successive ones are often in the same document.
	if o.last == nil || &o.last.text[0] != &obj.doc.text[0] {
		// Parse has reported the errors.
		o.tree, _ = obj.doc.parse()
		o.last = &obj.doc
	}
	n := o.tree[obj.path[0]]
	for _, i := range obj.path[1:] {
		_, items := field(n, "items")
		n = content(items)[i]
	}
	path := p.Field
	// Problems name these lists also if the object has the single field; see package kube.
	for _, list := range []string{"spec.clusterIPs", "spec.podCIDRs"} {
		if _, spec := field(n, "spec"); strings.HasPrefix(path, list) {
			if _, found := field(spec, strings.TrimPrefix(list, "spec.")); found == nil {
				path = strings.TrimSuffix(list, "s")
			}
		}
	}
	return fmt.Sprintf("%s:%d", obj.file, lineOf(n, path))
}
