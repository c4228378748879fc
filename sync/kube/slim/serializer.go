package slim

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// New returns serializers that decode Services, EndpointSlices and lists of them as the types of this package, and
// everything else as the given ones do, which must not convert. Any number of goroutines may use the result.
func New(standard runtime.NegotiatedSerializer) runtime.NegotiatedSerializer {
	formats := slices.Clone(standard.SupportedMediaTypes())
	for i := range formats {
		f := &formats[i]
		protobuf := f.MediaType == runtime.ContentTypeProtobuf
		f.Serializer = objects{f.Serializer, protobuf}
		if protobuf {
			stream := *f.StreamSerializer
			stream.Serializer = events{stream.Serializer}
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

// events decodes the events of a watch in protobuf.
type events struct{ runtime.Serializer }

// Decode implements [runtime.Decoder]. The object of an event is a part of data. client-go decodes the
// object before it uses data again for the next event.
func (e events) Decode(
	data []byte, defaults *schema.GroupVersionKind, into runtime.Object,
) (runtime.Object, *schema.GroupVersionKind, error) {
	if out, ok := into.(*metav1.WatchEvent); ok && readEvent(data, out) {
		return out, nil, nil // an event has no kind
	}
	return e.Serializer.Decode(data, defaults, into)
}

// objects decodes objects and lists.
type objects struct {
	runtime.Serializer
	protobuf bool
}

// Decode implements [runtime.Decoder]. The result shares nothing with data.
func (o objects) Decode(
	data []byte, defaults *schema.GroupVersionKind, into runtime.Object,
) (runtime.Object, *schema.GroupVersionKind, error) {
	if o.protobuf {
		if out, k, ok := read(data); ok {
			return put(out, into), &k, nil
		}
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
func read(data []byte) (runtime.Object, schema.GroupVersionKind, bool) {
	meta, raw, ok := open(data)
	k := meta.GroupVersionKind()
	if !ok {
		return nil, k, false
	}
	s := source{kind: protowire.BytesType, value: raw}
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
	}
	return out, k, out != nil && !s.bad
}

// readList reads a list whose items are read by a function.
func (s *source) readList(meta *metav1.ListMeta, item func()) {
	for m := s.open(); s.next(&m); {
		switch m.field {
		case 1:
			s.into(meta)
		case 2:
			item()
		}
	}
}
