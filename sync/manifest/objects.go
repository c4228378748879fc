package manifest

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
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
