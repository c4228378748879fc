package apitest

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// entry is one version of an object.
type entry struct {
	key    string // namespace/name, or name
	rv     uint64
	object runtime.Object // never changed
	labels labels.Set
	fields fields.Set
	encoded
}

func newEntry(obj runtime.Object, rv uint64) *entry {
	obj = obj.DeepCopyObject()
	obj.GetObjectKind().SetGroupVersionKind(kindOf(obj))
	m := obj.(metav1.Object)
	m.SetResourceVersion(formatRV(rv))
	e := &entry{
		key: m.GetName(), rv: rv, object: obj,
		labels: m.GetLabels(), fields: fields.Set{"metadata.name": m.GetName()}, encoded: encode(obj),
	}
	if m.GetNamespace() != "" {
		e.key = m.GetNamespace() + "/" + m.GetName()
		e.fields["metadata.namespace"] = m.GetNamespace()
	}
	if o, ok := obj.(*corev1.Service); ok {
		e.fields["spec.clusterIP"] = o.Spec.ClusterIP
		e.fields["spec.type"] = string(o.Spec.Type)
	}
	return e
}

func formatRV(rv uint64) string { return strconv.FormatUint(rv, 10) }

type eventKind int

const (
	change eventKind = iota // from old to now; one of them may be nil
	bookmark
	replay // now, which was told before
)

type event struct {
	kind     eventKind
	rv       uint64
	old, now *entry
}

// store holds the objects of one resource. The server's lock guards it.
type store struct {
	objects map[string]*entry

	limit int // of log
	log   []event
	first uint64        // number of the first event in the log
	floor uint64        // resource versions below it have expired
	how   Gone          // and this is how that is told
	more  chan struct{} // closed at the next event

	stalled  chan struct{} // nil, or closed when requests may go on
	refuse   int
	fault    Fault
	watching int
}

func newStore(limit int) *store {
	return &store{objects: make(map[string]*entry), limit: limit, more: make(chan struct{})}
}

func (st *store) append(e event) {
	if len(st.log) == st.limit {
		half := (st.limit + 1) / 2
		st.floor = max(st.floor, st.log[half-1].rv+1)
		st.log = append([]event(nil), st.log[half:]...)
		st.first += uint64(half)
	}
	st.log = append(st.log, e)
	close(st.more)
	st.more = make(chan struct{})
}

func (st *store) set(e *entry) string {
	st.append(event{kind: change, rv: e.rv, old: st.objects[e.key], now: e})
	st.objects[e.key] = e
	return formatRV(e.rv)
}

func (st *store) delete(e *entry) {
	old := st.objects[e.key]
	if old == nil {
		return
	}
	// A deleted object is told with the version of its deletion.
	st.append(event{kind: change, rv: e.rv, old: newEntry(old.object, e.rv)})
	delete(st.objects, e.key)
}

func (st *store) expire(rv uint64, how Gone) {
	st.floor, st.how = rv, how
}

func (st *store) restore(objects map[string]*entry, rv uint64) {
	st.objects = make(map[string]*entry)
	maps.Copy(st.objects, objects)
	st.first += uint64(len(st.log))
	st.log, st.floor = nil, rv
}

func (st *store) stall(on bool) {
	switch {
	case on && st.stalled == nil:
		st.stalled = make(chan struct{})
	case !on && st.stalled != nil:
		close(st.stalled)
		st.stalled = nil
	}
}

// list returns the entries that sel selects, by key.
func (st *store) list(sel selector) []*entry {
	var out []*entry
	for _, key := range slices.Sorted(maps.Keys(st.objects)) {
		if e := st.objects[key]; sel.matches(e) {
			out = append(out, e)
		}
	}
	return out
}

// after returns the number of the first event that is newer than rv.
func (st *store) after(rv uint64) uint64 {
	i, _ := slices.BinarySearchFunc(st.log, rv+1, func(e event, rv uint64) int {
		switch {
		case e.rv < rv:
			return -1
		case e.rv > rv:
			return 1
		}
		return 0
	})
	return st.first + uint64(i)
}

// selector is what a request asks for.
type selector struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

func (sel selector) matches(e *entry) bool {
	return e != nil &&
		(sel.namespace == "" || e.fields["metadata.namespace"] == sel.namespace) &&
		sel.labels.Matches(e.labels) && sel.fields.Matches(e.fields)
}
