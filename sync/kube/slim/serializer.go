package slim

import (
	"bytes"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vmapd/vmapd/sync/kube/wire"
)

// New returns serializers that decode Services, EndpointSlices and lists of them as the types of this
// package, and everything else as the given ones do. Any number of goroutines may use the result.
func New(standard runtime.NegotiatedSerializer) runtime.NegotiatedSerializer {
	formats := slices.Clone(standard.SupportedMediaTypes())
	for i := range formats {
		f := &formats[i]
		f.Serializer = objects{f.Serializer, f.MediaType}
		if f.MediaType == runtime.ContentTypeJSON {
			stream := *f.StreamSerializer
			stream.Serializer, stream.Framer = events{stream.Serializer}, framer{stream.Framer}
			f.StreamSerializer = &stream
		}
	}
	return serializers{standard, formats}
}

// serializers are the standard ones with other formats.
type serializers struct {
	runtime.NegotiatedSerializer
	formats []runtime.SerializerInfo
}

// SupportedMediaTypes implements [runtime.NegotiatedSerializer].
func (s serializers) SupportedMediaTypes() []runtime.SerializerInfo { return s.formats }

// objects decodes objects and lists.
type objects struct {
	runtime.Serializer
	mediaType string
}

// Decode implements [runtime.Decoder]. The result shares nothing with data.
func (o objects) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if out, k, ok := o.read(data); ok {
		return put(out, into), &k, nil
	}
	standard := into
	switch into.(type) {
	case *ServiceList, *EndpointSliceList:
		standard = nil
	}
	out, k, err := o.Serializer.Decode(data, defaults, standard)
	if err != nil {
		return out, k, err
	}
	return put(From(out), into), k, nil
}

// put moves a list to the place that the caller wants, and returns any other object itself.
func put(out, into runtime.Object) runtime.Object {
	switch into := into.(type) {
	case *ServiceList:
		if list, ok := out.(*ServiceList); ok {
			*into = *list
			return into
		}
	case *EndpointSliceList:
		if list, ok := out.(*EndpointSliceList); ok {
			*into = *list
			return into
		}
	}
	return out
}

// read reads an object or a list. It returns false if that is not of our kinds, or not as expected.
func (o objects) read(data []byte) (runtime.Object, schema.GroupVersionKind, bool) {
	s := source{data: data}
	var k schema.GroupVersionKind
	switch o.mediaType {
	case runtime.ContentTypeProtobuf:
		meta, raw, ok := wire.Open(data)
		if !ok {
			return nil, k, false
		}
		k = meta.GroupVersionKind()
		s.kind, s.value = bytesType, raw
	case runtime.ContentTypeJSON:
		meta := kindOf(data)
		k = meta.GroupVersionKind()
		s.json = true
	}
	var out runtime.Object
	switch k {
	case corev1.SchemeGroupVersion.WithKind("Service"):
		out = s.readService()
	case discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"):
		out = s.readSlice()
	case corev1.SchemeGroupVersion.WithKind("ServiceList"):
		list := &ServiceList{}
		s.readList(&list.ListMeta, func() { list.Items = append(list.Items, s.readService()) })
		out = list
	case discoveryv1.SchemeGroupVersion.WithKind("EndpointSliceList"):
		list := &EndpointSliceList{}
		s.readList(&list.ListMeta, func() { list.Items = append(list.Items, s.readSlice()) })
		out = list
	default:
		return nil, k, false
	}
	if s.json && s.peek() != 0 {
		s.fail()
	}
	return out, k, !s.bad
}

// readList reads a list whose items are read by a function.
func (s *source) readList(meta *metav1.ListMeta, item func()) {
	for m := s.open(); s.next(&m, listFields); {
		if m.field == 1 {
			s.into(&m, meta)
			continue
		}
		for l := s.list(); s.item(&l); {
			item()
		}
	}
}

// kindOf returns the kind of an object in JSON. A server writes it first.
func kindOf(data []byte) metav1.TypeMeta {
	s := source{data: data, json: true}
	var t metav1.TypeMeta
	for m := s.open(); s.next(&m, kindFields); {
		if m.field == 1 {
			t.Kind = string(s.text())
		} else {
			t.APIVersion = string(s.text())
		}
		if t.Kind != "" && t.APIVersion != "" {
			break
		}
	}
	return t
}

// These have no numbers in protobuf, where the kind is outside the object.
var (
	kindFields  = fields{1: "kind", 2: "apiVersion"}
	eventFields = fields{1: "type", 2: "object"}
)

// events decodes the events of a watch in JSON.
type events struct{ runtime.Serializer }

// Decode implements [runtime.Decoder]. The object of an event is a part of data. client-go decodes the
// object before it uses data again for the next event.
func (e events) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if out, ok := into.(*metav1.WatchEvent); ok && readEvent(data, out) {
		return out, nil, nil // an event has no kind
	}
	return e.Serializer.Decode(data, defaults, into)
}

// readEvent reads an event. As a server encodes it, the object is its last field, which has just those two:
// the object need not be scanned to find its end.
func readEvent(data []byte, out *metav1.WatchEvent) bool {
	if kind, object, ok := cutEvent(data); ok {
		*out = metav1.WatchEvent{Type: string(kind)}
		out.Object.Raw = object
		return true
	}
	s := source{data: data, json: true}
	var e metav1.WatchEvent
	for m := s.open(); s.next(&m, eventFields); {
		if m.field == 1 {
			e.Type = string(s.text())
			continue
		}
		s.skip()
		e.Object.Raw = s.raw(&m)
	}
	if s.bad || s.peek() != 0 || e.Type == "" || e.Object.Raw == nil {
		return false
	}
	*out = e
	return true
}

// cutEvent cuts {"type":"ADDED","object":{…}} into its values.
func cutEvent(data []byte) (kind, object []byte, ok bool) {
	rest, ok := bytes.CutPrefix(data, []byte(`{"type":"`))
	if !ok {
		return nil, nil, false
	}
	kind, object, ok = bytes.Cut(rest, []byte(`","object":{"kind":"`))
	if !ok || bytes.ContainsAny(kind, `"\\`) || !bytes.HasSuffix(object, []byte("}}")) {
		return nil, nil, false
	}
	return kind, rest[len(rest)-len(object)-len(`{"kind":"`) : len(rest)-1], true
}

// framer finds the events of a watch in JSON.
type framer struct{ runtime.Framer }

// NewFrameReader implements [runtime.Framer].
func (framer) NewFrameReader(r io.ReadCloser) io.ReadCloser { return newFrames(r) }
