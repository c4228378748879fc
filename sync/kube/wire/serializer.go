package wire

import (
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// New returns the standard serializers for the kinds of a scheme, with a protobuf decoder of
// our own. The standard ones must not convert. Any number of goroutines may use the result.
func New(scheme *runtime.Scheme, standard runtime.NegotiatedSerializer) runtime.NegotiatedSerializer {
	formats := slices.Clone(standard.SupportedMediaTypes())
	for i := range formats {
		f := &formats[i]
		if f.MediaType == runtime.ContentTypeProtobuf {
			stream := *f.StreamSerializer
			stream.Serializer = events{stream.Serializer}
			f.Serializer, f.StreamSerializer = objects{f.Serializer, kindsOf(scheme)}, &stream
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

// events decodes the events of a watch.
type events struct{ runtime.Serializer }

// Decode implements [runtime.Decoder]. The object of an event is a part of data. client-go
// decodes the object before it uses data again for the next event.
func (s events) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if e, ok := into.(*metav1.WatchEvent); ok && readEvent(data, e) {
		return e, nil, nil // an event has no kind
	}
	return s.Serializer.Decode(data, defaults, into)
}

// objects decodes objects and lists.
type objects struct {
	runtime.Serializer
	kinds map[metav1.TypeMeta]kind
}

// Decode implements [runtime.Decoder]. The result shares nothing with data.
func (s objects) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if out, k, ok := s.read(data, into); ok {
		out.GetObjectKind().SetGroupVersionKind(k)
		return out, &k, nil
	}
	return s.Serializer.Decode(data, defaults, into)
}

// kind is a kind that this package can read.
type kind struct {
	schema.GroupVersionKind
	pointer reflect.Type // to a message
}

// message has the methods that are generated for each type with a protobuf form.
type message interface {
	runtime.Object
	Reset()
	Unmarshal([]byte) error // merges into the message
}

// object is a message whose first field is its metadata.
type object interface {
	message
	metav1.ObjectMetaAccessor
}

var (
	messageType = reflect.TypeFor[message]()
	objectType  = reflect.TypeFor[object]()
)

// kindsOf returns the kinds of objects, and of lists of them, in a scheme.
func kindsOf(scheme *runtime.Scheme) map[metav1.TypeMeta]kind {
	out := map[metav1.TypeMeta]kind{}
	for gvk, t := range scheme.AllKnownTypes() {
		pointer := reflect.PointerTo(t)
		if pointer.Implements(objectType) || pointer.Implements(messageType) && isList(t) {
			var name metav1.TypeMeta
			name.APIVersion, name.Kind = gvk.ToAPIVersionAndKind()
			out[name] = kind{gvk, pointer}
		}
	}
	return out
}

func isList(t reflect.Type) bool {
	items, ok := t.FieldByName(itemsName)
	return ok && items.Type.Kind() == reflect.Slice && reflect.PointerTo(items.Type.Elem()).Implements(objectType)
}
