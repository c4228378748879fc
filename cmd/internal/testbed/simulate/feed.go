package simulate

import (
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// feed is one kind of objects, on the path from the server to the daemon. It stands for client-go's informer.
type feed struct {
	Name      string // of the kind, plural
	state     *reconcile.State
	delivered func() // called after the first list

	known  map[model.ObjectRef]modeltest.Object // nil: there was no list
	at     uint64                               // events up to this version have come; 0: a list comes next
	listed bool                                 // a list came
}

// list replaces all objects by those of a list, and begins a watch from its version.
func (f *feed) list(all []modeltest.Object, version uint64) {
	gone, first := f.known, f.known == nil
	f.known, f.at = map[model.ObjectRef]modeltest.Object{}, version
	for _, o := range all {
		f.set(o)
		delete(gone, o.Ref())
	}
	for _, o := range sorted(gone) {
		f.drop(o)
	}
	if first {
		f.delivered()
	}
}

// event takes the next event of the watch.
func (f *feed) event(e event) {
	f.at = e.version
	if e.deleted {
		f.drop(e.object)
	} else {
		f.set(e.object)
	}
}

// set writes an object into the state.
func (f *feed) set(o modeltest.Object) {
	f.known[o.Ref()] = o
	f.state.Update(reconcile.Change{}, o.Set)
}

func (f *feed) drop(o modeltest.Object) {
	delete(f.known, o.Ref())
	f.state.Update(reconcile.Change{}, o.Delete)
}
