package simulate

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/sync/kube"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// feed is one kind of objects, on its way from the server to the daemon. It stands for client-go's informer.
type feed struct {
	Name      string // of the kind, plural
	state     *reconcile.State
	delivered func() // called after the first list

	known  map[model.ObjectRef]modeltest.Object // nil: there was no list
	newest uint64                               // version from which a watch continues; 0: a list comes next

	at     uint64 // events up to this version have been sent, or lost
	lossy  bool   // some were lost
	listed bool   // a list came
}

var errDisorder = errors.New("events are out of order")

// Version returns the version from which a watch continues; 0: List comes next.
func (f *feed) Version() uint64 { return f.newest }

// List replaces all objects by those of a list, and begins a watch from its version.
func (f *feed) List(all []stored, version uint64) {
	gone, first := f.known, f.known == nil
	f.known, f.newest = map[model.ObjectRef]modeltest.Object{}, version
	for _, o := range all {
		f.set(o.Object, o.version)
		delete(gone, o.Ref())
	}
	byName := func(a, b model.ObjectRef) int { return cmp.Compare(a.String(), b.String()) }
	for _, ref := range slices.SortedFunc(maps.Keys(gone), byName) {
		f.drop(gone[ref])
	}
	if first {
		f.delivered()
	}
}

// Event takes an event of the watch. After an error, the watch is over, and List comes next.
func (f *feed) Event(e event) error {
	if e.version < f.newest {
		f.newest = 0
		return errDisorder
	}
	f.newest = e.version
	if e.what == watch.Deleted {
		f.drop(e.object)
	} else {
		f.set(e.object, e.version)
	}
	return nil
}

// set writes an object into the state, as it is read from a server.
func (f *feed) set(o modeltest.Object, version uint64) {
	f.known[o.Ref()] = o
	f.state.Update(reconcile.Change{}, func(b *model.Builder) { read(b, apiObject(o, version)) })
}

func (f *feed) drop(o modeltest.Object) {
	delete(f.known, o.Ref())
	f.state.Update(reconcile.Change{}, o.Delete)
}

func read(b *model.Builder, o runtime.Object) {
	switch o := o.(type) {
	case *corev1.Service:
		b.SetService(kube.Service(o))
	case *discoveryv1.EndpointSlice:
		b.SetEndpointSlice(kube.EndpointSlice(o))
	case *corev1.Node:
		b.SetNode(kube.Node(o))
	case *networkingv1.ServiceCIDR:
		b.SetServiceCIDR(kube.ServiceCIDR(o))
	}
}
