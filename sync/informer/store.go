package informer

import (
	"slices"
	"strconv"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/kube"
)

// A follower is the store of its reflector: it keeps names and versions, and writes the content into the state.
var (
	_ cache.TransformingStore      = (*follower)(nil)
	_ cache.ReflectorBookmarkStore = (*follower)(nil)
)

// Transformer makes client-go collect the names of a streamed list until it is complete; the content is in the state by
// then.
func (f *follower) Transformer() cache.TransformFunc {
	return func(o any) (any, error) {
		f.progress()
		return f.put(o), nil
	}
}

func (f *follower) Add(o any) error { return f.Update(o) }

func (f *follower) Update(o any) error {
	f.put(o)
	f.works()
	return nil
}

func (f *follower) Delete(o any) error {
	f.drop(nameOf(o.(metav1.Object)))
	f.works()
	return nil
}

func (f *follower) Bookmark(string) error {
	f.works()
	return nil
}

func (f *follower) Resync() error { return nil }

// Replace takes a list, of objects or of the names of a streamed list. What it lacks has been deleted.
func (f *follower) Replace(list []any, _ string) error {
	isObject := func(o any) bool { _, streamed := o.(model.NamespacedName); return !streamed }
	if len(list) == len(f.known) && !slices.ContainsFunc(list, isObject) {
		f.listed() // nothing is lacking: streamed names differ, and put knows each
		return nil
	}
	next := make(map[model.NamespacedName]bool, len(list))
	for _, o := range list {
		name, streamed := o.(model.NamespacedName)
		if !streamed {
			name = f.put(o)
		}
		next[name] = true
	}
	for name := range f.known {
		if !next[name] {
			f.drop(name)
		}
	}
	f.listed()
	return nil
}

// put writes an object into the state, unless the state has this version. It ends the use of the object.
func (f *follower) put(o any) model.NamespacedName {
	m := o.(metav1.Object)
	name, change := nameOf(m), f.counts
	if slice, ok := o.(*discoveryv1.EndpointSlice); ok {
		change.Trigger = kube.Triggered(slice)
		if slice.AddressType == discoveryv1.AddressTypeIPv6 {
			change.Family = model.IPv6
		}
	}
	// Versions of all our kinds are numbers that grow (KEP-5504). 0: not known.
	version, _ := strconv.ParseUint(m.GetResourceVersion(), 10, 64)
	if had, ok := f.known[name]; !ok || had != version || version == 0 {
		f.known[name] = version
		f.state.Update(change, func(b *model.Builder) { kube.Set(b, o) })
	}
	return name
}

func (f *follower) drop(name model.NamespacedName) {
	if _, ok := f.known[name]; ok {
		delete(f.known, name)
		ref := model.ObjectRef{Kind: f.kind, NamespacedName: name}
		f.state.Update(f.counts, func(b *model.Builder) { kube.Delete(b, ref) })
	}
}

func nameOf(o metav1.Object) model.NamespacedName {
	return model.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}
