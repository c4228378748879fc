package slim

import (
	"bytes"
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
		if protobuf && f.StreamSerializer != nil {
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
			return out, &k, nil
		}
	}
	out, k, err := o.Serializer.Decode(data, defaults, into)
	if err != nil {
		return out, k, err
	}
	return From(out), k, nil
}

// events decodes the events of a watch in protobuf. The standard decoder would copy each object before another one
// reads it: half of the garbage of a start.
type events struct{ runtime.Serializer }

// Decode implements [runtime.Decoder]. The object of an event is a part of data.
func (e events) Decode(
	data []byte, defaults *schema.GroupVersionKind, into runtime.Object,
) (runtime.Object, *schema.GroupVersionKind, error) {
	if event, ok := into.(*metav1.WatchEvent); ok {
		s := source{kind: protowire.BytesType, value: data}
		if kind, object := s.readEvent(); !s.bad && object != nil {
			event.Type, event.Object.Raw = kind, object
			return event, defaults, nil
		}
	}
	return e.Serializer.Decode(data, defaults, into)
}

// readEvent reads a meta/v1 WatchEvent.
func (s *source) readEvent() (kind string, object []byte) {
	for m := s.open(); s.next(&m); {
		switch m.field {
		case 1:
			kind = s.text()
		case 2:
			for raw := s.open(); s.next(&raw); { // a RawExtension
				if raw.field == 1 {
					object = s.bytes()
				}
			}
		}
	}
	return kind, object
}

// The first bytes of an object in protobuf (k8s.io/apimachinery/pkg/runtime/serializer/protobuf).
var magic = []byte("k8s\x00")

// read reads an object or a list. It returns false if that is not of our kinds, or not as expected.
func read(data []byte) (runtime.Object, schema.GroupVersionKind, bool) {
	content, ok := bytes.CutPrefix(data, magic)
	if !ok {
		return nil, schema.GroupVersionKind{}, false
	}
	s := source{kind: protowire.BytesType, value: content}
	k := s.readEnvelope()
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

// readEnvelope reads an apimachinery runtime.Unknown up to the content, which is the present value then.
func (s *source) readEnvelope() schema.GroupVersionKind {
	var kind runtime.TypeMeta
	var content []byte
	for m := s.open(); s.next(&m); {
		switch m.field {
		case 1:
			s.into(&kind)
		case 2:
			content = s.bytes()
		}
	}
	s.kind, s.value = protowire.BytesType, content
	return schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
}

// readList reads a list, and its items by a function.
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
