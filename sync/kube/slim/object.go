package slim

import (
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vmapd/vmapd/model"
)

// Meta is the part of an object's metadata that client-go needs.
type Meta struct {
	metav1.Object // shared and empty: for methods that nobody calls

	namespace, name, version string

	endsList bool // a bookmark, after the last of the initial events
}

// nothing is the shared rest of all objects' metadata.
var nothing metav1.Object = &metav1.ObjectMeta{} //nolint:gochecknoglobals // one for all objects

// GetNamespace implements [metav1.Object].
func (m *Meta) GetNamespace() string { return m.namespace }

// GetName implements [metav1.Object].
func (m *Meta) GetName() string { return m.name }

// GetResourceVersion implements [metav1.Object].
func (m *Meta) GetResourceVersion() string { return m.version }

// GetAnnotations implements [metav1.Object]. There is one at most: that of the bookmark after the last
// of the initial events.
func (m *Meta) GetAnnotations() map[string]string {
	if !m.endsList {
		return nil
	}
	return map[string]string{metav1.InitialEventsAnnotationKey: "true"}
}

// GetObjectKind implements [runtime.Object].
func (m *Meta) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// Service is a v1 Service.
type Service struct {
	Meta
	Model model.Service
}

// DeepCopyObject implements [runtime.Object]. The content is shared, as nobody writes it.
func (s *Service) DeepCopyObject() runtime.Object {
	out := *s
	return &out
}

// EndpointSlice is a discovery/v1 EndpointSlice.
type EndpointSlice struct {
	Meta
	Model   model.EndpointSlice
	Trigger time.Time // see kube.Triggered

	addresses []string // of all endpoints, one after the other
}

// DeepCopyObject implements [runtime.Object]. The copy has memory of its own.
func (s *EndpointSlice) DeepCopyObject() runtime.Object {
	out := *s
	out.Model.Labels = maps.Clone(s.Model.Labels)
	out.Model.Ports = slices.Clone(s.Model.Ports)
	out.Model.Endpoints = slices.Clone(s.Model.Endpoints)
	for i := range out.Model.Endpoints {
		e := &out.Model.Endpoints[i]
		e.Addresses = slices.Clone(e.Addresses)
	}
	out.addresses = nil
	return &out
}

// used are EndpointSlices with reusable memory.
var used = sync.Pool{New: func() any { //nolint:gochecknoglobals // memory, without meaning
	return &EndpointSlice{Model: model.EndpointSlice{Labels: map[string]string{}}}
}}

// Release gives the memory of an EndpointSlice to the next one. The caller must be the only one that
// has it, and must not use it any more. Without Release, the memory is garbage.
func (s *EndpointSlice) Release() { used.Put(s) }

// newSlice returns an EndpointSlice without content, but with memory.
func newSlice() *EndpointSlice {
	s := used.Get().(*EndpointSlice)
	labels := s.Model.Labels
	clear(labels)
	clear(s.addresses)
	clear(s.Model.Endpoints)
	*s = EndpointSlice{
		Meta: Meta{Object: nothing},
		Model: model.EndpointSlice{
			Labels: labels, Ports: s.Model.Ports[:0], Endpoints: s.Model.Endpoints[:0],
		},
		addresses: s.addresses[:0],
	}
	return s
}

// List is a list of objects.
type List[T runtime.Object] struct {
	metav1.ListMeta
	Items []T // client-go looks for this name
}

// The lists of our kinds.
type (
	// ServiceList has Services.
	ServiceList = List[*Service]
	// EndpointSliceList has EndpointSlices.
	EndpointSliceList = List[*EndpointSlice]
)

// GetObjectKind implements [runtime.Object].
func (l *List[T]) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements [runtime.Object].
func (l *List[T]) DeepCopyObject() runtime.Object {
	out := &List[T]{Items: make([]T, 0, len(l.Items))}
	l.DeepCopyInto(&out.ListMeta)
	for _, o := range l.Items {
		out.Items = append(out.Items, o.DeepCopyObject().(T))
	}
	return out
}
