package informer

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// store is the store of client-go's reflector for one kind: it writes objects into the state.
// For itself it keeps their names and sums only.
//
// It has no lock. A stream changes it during the initial events, and the reflector only after
// their end, or after a failed stream has stopped.
type store struct {
	*resource
	state    *reconcile.State
	replaced func() // called after the initial list

	summer *summer
	known  map[model.NamespacedName]held
	filled bool // with the initial list

	gone     map[model.NamespacedName]uint64 // objects that were deleted since: the deletion's version
	complete uint64                          // gone has all deletions after this version, and after the last list
	witness  *witness                        // not nil: it has the object of this store
}

// held is what the store keeps of an object.
type held struct{ sum, version uint64 }

// maxGone is the maximum of deleted objects that a store remembers.
const maxGone = 1000

func newStore(r *resource, s *reconcile.State, replaced func()) *store {
	return &store{resource: r, state: s, replaced: replaced, summer: newSummer(), known: map[model.NamespacedName]held{}, gone: map[model.NamespacedName]uint64{}}
}

// initial reads one of the initial events, which client-go collects until it has all of
// them, without their content. At the start the state gets the content at once, since
// nothing is programmed before the state is complete. Later the state has most of it
// already. If the events are cut off, the next Replace corrects the state.
func (s *store) initial(e watch.Event) watch.Event {
	e = s.later(e)
	o, ok := e.Object.(*object)
	switch {
	case !ok:
	case !s.filled && (e.Type == watch.Added || e.Type == watch.Modified):
		s.put(o)
	case s.has(o):
		o.done()
	}
	return e
}

// later reads an event that follows the initial ones. client-go logs and ignores an object of
// another kind.
func (s *store) later(e watch.Event) watch.Event {
	if o, ok := s.read(e.Object, s.summer); ok {
		e.Object = o
	}
	return e
}

// listed reads the objects of a list.
func (s *store) listed(l runtime.Object) (*objects, error) {
	m, err := meta.ListAccessor(l)
	if err != nil {
		return nil, err
	}
	out := &objects{Items: make([]*object, 0, meta.LenList(l))}
	out.ResourceVersion, out.Continue, out.RemainingItemCount = m.GetResourceVersion(), m.GetContinue(), m.GetRemainingItemCount()
	err = meta.EachListItem(l, func(in runtime.Object) error {
		o, ok := s.read(in, s.summer)
		if !ok {
			return fmt.Errorf("list of %s has a %T", s.name, in)
		}
		out.Items = append(out.Items, o)
		return nil
	})
	return out, err
}

func (s *store) has(o *object) bool {
	h, ok := s.known[o.name]
	return ok && h.sum == o.sum
}

// put writes an object into the state, unless the state has it, and releases its content.
func (s *store) put(o *object) {
	if !s.has(o) {
		s.state.Update(o.change, o.set)
		s.known[o.name] = o.held()
		delete(s.gone, o.name)
		s.witness.note(o)
	}
	o.done()
}

func (s *store) drop(name model.NamespacedName) {
	if _, ok := s.known[name]; ok {
		s.state.Update(s.removal, func(b *model.Builder) { s.remove(b, name) })
		delete(s.known, name)
	}
}

// Add implements [cache.ReflectorStore].
func (s *store) Add(o any) error { return s.Update(o) }

// Update implements [cache.ReflectorStore]. Some servers send an event twice.
func (s *store) Update(o any) error {
	s.put(o.(*object))
	return nil
}

func (s *store) Delete(in any) error {
	o := in.(*object)
	s.drop(o.name)
	s.witness.note(nil)
	version := o.held().version
	if len(s.gone) == maxGone {
		clear(s.gone)
		s.complete = version
	}
	s.gone[o.name] = version
	return nil
}

// Replace implements [cache.ReflectorStore]. After a watch that could not be resumed, the
// list repeats unchanged objects, and missing ones have been deleted. The version alone does
// not show a change: after a restore from a backup, one version may be used twice.
func (s *store) Replace(list []any, _ string) error {
	next := make(map[model.NamespacedName]held, len(list))
	for _, item := range list {
		o := item.(*object)
		s.put(o)
		next[o.name] = o.held()
	}
	for name := range s.known {
		if _, ok := next[name]; !ok {
			s.drop(name)
		}
	}
	s.known = next
	clear(s.gone)
	s.complete = 0
	if !s.filled {
		s.filled = true
		s.replaced()
	}
	return nil
}

// Resync implements [cache.ReflectorStore]. It is never called.
func (s *store) Resync() error { return nil }
