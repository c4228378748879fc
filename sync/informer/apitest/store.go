package apitest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// maxLog bounds how many events a store remembers; who is further behind has to list
// again, as with a real server.
const maxLog = 1 << 16

// entry is one version of an object.
type entry struct {
	key    string // namespace/name, or name
	rv     uint64
	json   []byte
	labels labels.Set
	fields fields.Set
}

func newEntry(obj runtime.Object, rv uint64) *entry {
	obj = obj.DeepCopyObject()
	e := &entry{rv: rv, fields: make(fields.Set)}
	switch o := obj.(type) {
	case *corev1.Service:
		o.APIVersion, o.Kind = "v1", "Service"
		e.fields["spec.clusterIP"] = o.Spec.ClusterIP
		e.fields["spec.type"] = string(o.Spec.Type)
	case *discoveryv1.EndpointSlice:
		o.APIVersion, o.Kind = "discovery.k8s.io/v1", "EndpointSlice"
	case *corev1.Node:
		o.APIVersion, o.Kind = "v1", "Node"
	case *networkingv1.ServiceCIDR:
		o.APIVersion, o.Kind = "networking.k8s.io/v1", "ServiceCIDR"
	}
	m := obj.(metav1.Object)
	m.SetResourceVersion(formatRV(rv))
	e.key = m.GetName()
	if m.GetNamespace() != "" {
		e.key = m.GetNamespace() + "/" + m.GetName()
		e.fields["metadata.namespace"] = m.GetNamespace()
	}
	e.fields["metadata.name"] = m.GetName()
	e.labels = m.GetLabels()
	var err error
	if e.json, err = json.Marshal(obj); err != nil {
		panic(fmt.Sprintf("apitest: %s: %v", e.key, err))
	}
	return e
}

func formatRV(rv uint64) string { return strconv.FormatUint(rv, 10) }

type eventKind int

const (
	change eventKind = iota // from old to now; one of them may be nil
	bookmark
)

type event struct {
	kind     eventKind
	rv       uint64
	old, now *entry
}

// store holds the objects of one resource. The server's lock guards it.
type store struct {
	objects map[string]*entry

	log   []event
	first uint64        // number of the first event in the log
	floor uint64        // resource versions below it have expired
	how   Gone          // and this is how that is told
	more  chan struct{} // closed at the next event

	stalled  chan struct{} // nil, or closed when requests may go on
	refuse   int
	watching int
}

func newStore() *store {
	return &store{objects: make(map[string]*entry), more: make(chan struct{})}
}

func (st *store) append(e event) {
	if len(st.log) == maxLog {
		half := maxLog / 2
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
	old = &entry{key: old.key, rv: e.rv, labels: old.labels, fields: old.fields, json: withRV(old.json, e.rv)}
	st.append(event{kind: change, rv: e.rv, old: old})
	delete(st.objects, e.key)
}

func (st *store) expire(rv uint64, how Gone) {
	st.floor, st.how = rv, how
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

func withRV(object []byte, rv uint64) []byte {
	var o map[string]any
	if err := json.Unmarshal(object, &o); err != nil {
		panic(fmt.Sprintf("apitest: %v", err))
	}
	o["metadata"].(map[string]any)["resourceVersion"] = formatRV(rv)
	out, err := json.Marshal(o)
	if err != nil {
		panic(fmt.Sprintf("apitest: %v", err))
	}
	return out
}
