package informer

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/kube"
)

// A follower is the store of its reflector: it writes what is new into the state, and keeps nothing.
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
	for i, o := range list {
		if _, streamed := o.(model.NamespacedName); !streamed {
			list[i] = f.put(o)
		}
	}
	if has := f.state.Names(f.kind); len(has) > len(list) { // the state has each of the list, in which none is twice
		lacking := sets.New(has...)
		for _, name := range list {
			lacking.Delete(name.(model.NamespacedName))
		}
		for name := range lacking {
			f.drop(name)
		}
	}
	f.listed()
	return nil
}

// put writes an object into the state, unless the state has this version. It ends the use of the object.
func (f *follower) put(o any) model.NamespacedName {
	m := o.(metav1.Object)
	ref, change := f.ref(nameOf(m)), f.counts
	if slice, ok := o.(*discoveryv1.EndpointSlice); ok {
		change.Trigger = kube.Triggered(slice)
		if slice.AddressType == discoveryv1.AddressTypeIPv6 {
			change.Family = model.IPv6
		}
	}
	if had, _ := f.state.Version(ref); had == 0 || had != kube.Version(m) {
		f.state.Update(change, func(b *model.Builder) { kube.Set(b, o) })
	}
	return ref.NamespacedName
}

func (f *follower) drop(name model.NamespacedName) {
	ref := f.ref(name)
	if _, known := f.state.Version(ref); known {
		f.state.Update(f.counts, func(b *model.Builder) { kube.Delete(b, ref) })
	}
}

func (f *follower) ref(name model.NamespacedName) model.ObjectRef {
	return model.ObjectRef{Kind: f.kind, NamespacedName: name}
}

func nameOf(o metav1.Object) model.NamespacedName {
	return model.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}
