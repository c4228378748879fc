package manifest

import (
	"fmt"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/vmapd/vmapd/model"
)

// Objects are the API objects of one or more manifests, each once. They do not
// change, and may be used by any number of goroutines.
type Objects struct {
	// Ignored counts the objects of kinds that the proxy doesn't read, by apiVersion
	// and kind: "apps/v1 Deployment".
	Ignored map[string]int

	list  []*object // in the order of the files
	byRef map[model.ObjectRef]*object

	mu   sync.Mutex // guards the tree that Locate used last
	last *document
	tree []*yaml.Node
}

// merge puts the objects of several files together. Of two with one name the first
// wins, whichever file changed last: a restart must not change the outcome.
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
func (o *Objects) ApplyTo(b *model.Builder) { o.applyTo(b) }

// builder is what is used of a [model.Builder].
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

func (o *Objects) applyTo(b builder) {
	for _, obj := range o.list {
		obj.set(b)
	}
}

func (o *object) set(b builder) {
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

func (o *object) delete(b builder) {
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

// Locate returns where the field that p is about is written, as "file:line": that
// of its nearest parent if the field isn't written down, and that of the object if
// p names no field. It returns "" if the object is in none of the manifests.
//
// The lines are not kept in memory; the object's document is read again.
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
	// Problems come sorted by name, so those of one document mostly come together.
	if o.last == nil || &o.last.text[0] != &obj.doc.text[0] {
		// Errors were reported when the document was read first.
		o.tree, _ = obj.doc.parse()
		o.last = &obj.doc
	}
	n := o.tree[obj.path[0]]
	for _, i := range obj.path[1:] {
		_, items := field(n, "items")
		n = content(items)[i]
	}
	path := p.Field
	// The model knows only these lists; see package kube.
	for _, list := range []string{"spec.clusterIPs", "spec.podCIDRs"} {
		if _, spec := field(n, "spec"); strings.HasPrefix(path, list) {
			if _, found := field(spec, strings.TrimPrefix(list, "spec.")); found == nil {
				path = strings.TrimSuffix(list, "s")
			}
		}
	}
	return fmt.Sprintf("%s:%d", obj.file, lineOf(n, path))
}
