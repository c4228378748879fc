package slim

import (
	"bytes"
	"errors"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmapd/vmapd/model"
)

// The first bytes of an object in protobuf (k8s.io/apimachinery/pkg/runtime/serializer/protobuf).
var magic = []byte("k8s\x00")

var errOther = errors.New("not of our kinds")

// reader knows what to read.
type reader struct {
	kinds map[string]*kind // by the runtime.TypeMeta of their messages

	// The keys, each also as the value, so that an object takes no copy.
	labels, annotations map[string]string
}

type kind struct {
	schema.GroupVersionKind
	read func(message []byte) (runtime.Object, error)
}

func newReader() *reader {
	r := &reader{kinds: map[string]*kind{}, labels: map[string]string{}, annotations: map[string]string{}}
	for _, k := range []kind{
		{corev1.SchemeGroupVersion.WithKind("Service"), one(r.readService)},
		{corev1.SchemeGroupVersion.WithKind("ServiceList"), func(data []byte) (_ runtime.Object, err error) {
			out := new(corev1.ServiceList)
			out.Items, err = readList(data, &out.ListMeta, r.readService)
			return out, err
		}},
		{discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), one(r.readSlice)},
		{discoveryv1.SchemeGroupVersion.WithKind("EndpointSliceList"), func(data []byte) (_ runtime.Object, err error) {
			out := new(discoveryv1.EndpointSliceList)
			out.Items, err = readList(data, &out.ListMeta, r.readSlice)
			return out, err
		}},
	} {
		var meta runtime.TypeMeta
		meta.APIVersion, meta.Kind = k.ToAPIVersionAndKind()
		text, _ := meta.Marshal() // it has no error
		r.kinds[string(text)] = &k
	}
	for _, name := range []string{model.LabelServiceName, model.LabelHeadless, model.LabelServiceProxyName} {
		r.labels[name] = name
	}
	for _, name := range []string{
		corev1.EndpointsLastChangeTriggerTime, metav1.InitialEventsAnnotationKey, // the latter is a bookmark's
	} {
		r.annotations[name] = name
	}
	for _, a := range model.Annotations {
		r.annotations[a.Name] = a.Name
	}
	return r
}

func one[T any, P interface {
	*T
	runtime.Object
}](read func([]byte, *T) error) func([]byte) (runtime.Object, error) {
	return func(message []byte) (runtime.Object, error) {
		out := P(new(T))
		return out, read(message, out)
	}
}

// read reads an object or a list of our kinds, in an apimachinery runtime.Unknown. The numbers of fields, here and
// below, are those in the generated.proto of k8s.io/api and k8s.io/apimachinery.
func (r *reader) read(data []byte) (runtime.Object, *schema.GroupVersionKind, error) {
	envelope, encoded := bytes.CutPrefix(data, magic)
	var typeMeta, content []byte
	err := walk(envelope, func(field int, value []byte) error {
		switch field {
		case 1:
			typeMeta = value
		case 2:
			content = value
		}
		return nil
	})
	k := r.kinds[string(typeMeta)]
	if err != nil || !encoded || k == nil {
		return nil, nil, errors.Join(err, errOther)
	}
	out, err := k.read(content)
	return out, &k.GroupVersionKind, err
}

func readList[T any](data []byte, meta *metav1.ListMeta, item func([]byte, *T) error) ([]T, error) {
	items := make([]T, 0, count(data, 2))
	return items, walk(data, func(field int, value []byte) error {
		switch field {
		case 1:
			return meta.Unmarshal(value)
		case 2:
			items = items[:len(items)+1]
			return item(value, &items[len(items)-1])
		}
		return nil
	})
}

func (r *reader) readService(data []byte, out *corev1.Service) error {
	return walk(data, func(field int, value []byte) error {
		switch field {
		case 1: // metadata
			return r.readMeta(value, &out.ObjectMeta)
		case 2:
			return without(value, 2, out.Spec.Unmarshal) // selector
		case 3:
			return out.Status.Unmarshal(value)
		}
		return nil
	})
}

func (r *reader) readSlice(data []byte, out *discoveryv1.EndpointSlice) error {
	out.Endpoints = make([]discoveryv1.Endpoint, 0, count(data, 2))
	return walk(data, func(field int, value []byte) error {
		switch field {
		case 1: // metadata
			return r.readMeta(value, &out.ObjectMeta)
		case 2: // endpoints
			out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{})
			return readEndpoint(value, &out.Endpoints[len(out.Endpoints)-1])
		case 3: // ports
			out.Ports = append(out.Ports, discoveryv1.EndpointPort{})
			return out.Ports[len(out.Ports)-1].Unmarshal(value)
		case 4: // addressType
			out.AddressType = discoveryv1.AddressType(value)
		}
		return nil
	})
}

func (r *reader) readMeta(data []byte, out *metav1.ObjectMeta) error {
	return walk(data, func(field int, value []byte) error {
		switch field {
		case 1:
			out.Name = string(value)
		case 3:
			out.Namespace = string(value)
		case 5:
			out.UID = types.UID(value)
		case 6:
			out.ResourceVersion = string(value)
		case 8:
			return out.CreationTimestamp.Unmarshal(value)
		case 11:
			return readEntry(value, &out.Labels, r.labels)
		case 12:
			return readEntry(value, &out.Annotations, r.annotations)
		}
		return nil
	})
}

// readEntry reads an entry of a map, if its key is wanted.
func readEntry(data []byte, to *map[string]string, wanted map[string]string) error {
	var key, text []byte
	err := walk(data, func(field int, value []byte) error {
		switch field {
		case 1:
			key = value
		case 2:
			text = value
		}
		return nil
	})
	if name, ok := wanted[string(key)]; ok {
		if *to == nil {
			*to = map[string]string{}
		}
		(*to)[name] = string(text)
	}
	return err
}

func readEndpoint(data []byte, out *discoveryv1.Endpoint) error {
	return walk(data, func(field int, value []byte) error {
		switch field {
		case 1: // addresses
			out.Addresses = append(out.Addresses, string(value))
		case 2: // conditions
			return out.Conditions.Unmarshal(value)
		case 6: // nodeName
			out.NodeName = new(string(value))
		case 8: // hints
			if out.Hints == nil {
				out.Hints = new(discoveryv1.EndpointHints)
			}
			return out.Hints.Unmarshal(value)
		}
		return nil
	})
}
