package informer

import (
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// object is what is kept of an object: its name and its version, and until the state has it the part that the proxy
// needs.
type object struct {
	metav1.Object // shared and empty: for methods that client-go doesn't call

	name    model.NamespacedName
	version uint64               // 0: not known
	change  reconcile.Change     // for metrics
	set     func(*model.Builder) // writes it into the state; nil: the state has it already
	release func()               // gives its memory back; nil: there is nothing to give back
}

// nothing is the shared rest of all objects' metadata.
var nothing metav1.Object = &metav1.ObjectMeta{} //nolint:gochecknoglobals // one for all objects

// GetNamespace implements [metav1.Object].
func (o *object) GetNamespace() string { return o.name.Namespace }

// GetName implements [metav1.Object].
func (o *object) GetName() string { return o.name.Name }

// done is called when nobody needs the object's content any more.
func (o *object) done() {
	o.set = nil
	if o.release != nil {
		o.release()
		o.release = nil
	}
}

// store writes the objects of client-go's informer for one kind into the state. For itself it keeps their names and
// versions only.
type store struct {
	*resource
	state    *reconcile.State
	replaced func() // called after each list

	mu    sync.Mutex
	known map[model.NamespacedName]uint64 // the versions that the state has; 0: not known
	began bool                            // a list has been read to its end
}

func newStore(r *resource, s *reconcile.State, replaced func()) *store {
	return &store{resource: r, state: s, replaced: replaced, known: map[model.NamespacedName]uint64{}}
}

// transform is the informer's [cache.TransformFunc]: it returns what is kept of an object. At the start the state gets
// the content at once, since nothing is programmed before the state is complete. Later, the objects of a list that the
// state has already lose theirs.
func (s *store) transform(in any) (any, error) {
	if o, ok := in.(*object); ok {
		return o, nil // client-go transforms streamed lists twice
	}
	from, _ := in.(runtime.Object)
	o := s.read(from)
	if o == nil {
		return nil, fmt.Errorf("%s have a %T", s.name, in)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.began:
		s.put(o)
	case s.has(o):
		o.done()
	}
	return o, nil
}

// process is the informer's [cache.ProcessFunc].
func (s *store) process(in any, _ bool) error {
	deltas, ok := in.(cache.Deltas)
	if !ok {
		return fmt.Errorf("client-go gave %T", in)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range deltas {
		switch o := d.Object.(type) {
		case cache.ReplacedAllInfo:
			s.replace(o.Objects)
		case *object:
			if d.Type == cache.Deleted {
				s.drop(o.name)
				o.done()
			} else {
				s.put(o)
			}
		}
	}
	return nil
}

// replace takes a list. After a watch that could not be resumed, it repeats unchanged objects, and missing ones have
// been deleted.
func (s *store) replace(list []any) {
	next := make(map[model.NamespacedName]bool, len(list))
	for _, item := range list {
		o := item.(*object)
		s.put(o)
		next[o.name] = true
	}
	for name := range s.known {
		if !next[name] {
			s.drop(name)
		}
	}
	s.replaced()
}

// complete is called before client-go has the end of a list.
func (s *store) complete() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began = true
}

// forget makes each object of the next list a change, whatever its version. It reports whether there was a list before.
func (s *store) forget() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.known {
		s.known[name] = 0
	}
	return s.began
}

func (s *store) has(o *object) bool { return o.version != 0 && s.known[o.name] == o.version }

// put writes an object into the state, unless the state has it, and releases its content. Some servers send an event
// twice.
func (s *store) put(o *object) {
	if o.set != nil && !s.has(o) {
		s.state.Update(o.change, o.set)
		s.known[o.name] = o.version
	}
	o.done()
}

func (s *store) drop(name model.NamespacedName) {
	if _, ok := s.known[name]; ok {
		s.state.Update(s.removal, func(b *model.Builder) { s.remove(b, name) })
		delete(s.known, name)
	}
}
