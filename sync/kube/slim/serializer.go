package slim

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// New returns serializers that decode Services, EndpointSlices and lists of them as this package does, and everything
// else as the given ones do, which must not convert. Any number of goroutines may use the result.
func New(standard runtime.NegotiatedSerializer) runtime.NegotiatedSerializer {
	formats := slices.Clone(standard.SupportedMediaTypes())
	for i := range formats {
		f := &formats[i]
		if f.MediaType != runtime.ContentTypeProtobuf || f.StreamSerializer == nil {
			continue
		}
		stream := *f.StreamSerializer
		stream.Serializer = events{stream.Serializer}
		f.Serializer, f.StreamSerializer = objects{f.Serializer, newReader()}, &stream
	}
	return serializers{standard, formats}
}

// serializers are the standard ones with other formats.
type serializers struct {
	runtime.NegotiatedSerializer
	formats []runtime.SerializerInfo
}

func (s serializers) SupportedMediaTypes() []runtime.SerializerInfo { return s.formats }

// objects decodes objects and lists.
type objects struct {
	runtime.Serializer
	*reader
}

// Decode implements [runtime.Decoder]. The result shares nothing with data.
func (o objects) Decode(
	data []byte, defaults *schema.GroupVersionKind, into runtime.Object,
) (runtime.Object, *schema.GroupVersionKind, error) {
	if out, k, err := o.read(data); err == nil {
		return out, k, nil
	}
	return o.Serializer.Decode(data, defaults, into)
}

// events decodes the events of a watch. The standard decoder would copy each object before another one reads it: half
// of the garbage of a start.
type events struct{ runtime.Serializer }

// Decode implements [runtime.Decoder]. The object of an event is a part of data.
func (e events) Decode(
	data []byte, defaults *schema.GroupVersionKind, into runtime.Object,
) (runtime.Object, *schema.GroupVersionKind, error) {
	if event, ok := into.(*metav1.WatchEvent); ok {
		if kind, object, err := readEvent(data); err == nil && object != nil {
			event.Type, event.Object.Raw = kind, object
			return event, defaults, nil
		}
	}
	return e.Serializer.Decode(data, defaults, into)
}

// readEvent reads a meta/v1 WatchEvent.
func readEvent(data []byte) (kind string, object []byte, err error) {
	err = walk(data, func(field int, value []byte) error {
		switch field {
		case 1:
			kind = string(value)
		case 2:
			return walk(value, func(field int, raw []byte) error { // a RawExtension
				if field == 1 {
					object = raw
				}
				return nil
			})
		}
		return nil
	})
	return kind, object, err
}
