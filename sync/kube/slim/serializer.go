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
		f.Serializer = objects{f.Serializer, f.MediaType == runtime.ContentTypeProtobuf}
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

// The first bytes of an object in protobuf (k8s.io/apimachinery/pkg/runtime/serializer/protobuf).
var magic = []byte("k8s\x00")

// read reads an object or a list. It returns false if that is not of our kinds, or not as expected.
func read(data []byte) (runtime.Object, schema.GroupVersionKind, bool) {
	var envelope runtime.Unknown
	content, ok := bytes.CutPrefix(data, magic)
	if !ok || envelope.Unmarshal(content) != nil {
		return nil, schema.GroupVersionKind{}, false
	}
	k := envelope.GroupVersionKind()
	s := source{kind: protowire.BytesType, value: envelope.Raw}
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
			if meta.Unmarshal(s.bytes()) != nil {
				s.fail()
			}
		case 2:
			item()
		}
	}
}
