package slim

import (
	"bytes"
	"errors"
	"slices"

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

// read reads an object or a list of our kinds, in an apimachinery runtime.Unknown. The numbers of fields, here and
// below, are those in the generated.proto of k8s.io/api and k8s.io/apimachinery.
func read(data []byte) (runtime.Object, schema.GroupVersionKind, error) {
	envelope, _ := bytes.CutPrefix(data, magic)
	var kind runtime.TypeMeta
	var content []byte
	err := walk(envelope, func(field int, value []byte) error {
		switch field {
		case 1:
			return kind.Unmarshal(value)
		case 2:
			content = value
		}
		return nil
	})
	k := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
	if err != nil || len(envelope) == len(data) {
		return nil, k, errors.Join(err, errOther)
	}
	switch k {
	case corev1.SchemeGroupVersion.WithKind("Service"):
		out := new(corev1.Service)
		return out, k, readService(content, out)
	case corev1.SchemeGroupVersion.WithKind("ServiceList"):
		out := new(corev1.ServiceList)
		out.Items, err = readList(content, &out.ListMeta, readService)
		return out, k, err
	case discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"):
		out := new(discoveryv1.EndpointSlice)
		return out, k, readSlice(content, out)
	case discoveryv1.SchemeGroupVersion.WithKind("EndpointSliceList"):
		out := new(discoveryv1.EndpointSliceList)
		out.Items, err = readList(content, &out.ListMeta, readSlice)
		return out, k, err
	}
	return nil, k, errOther
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

func readService(data []byte, out *corev1.Service) error {
	return walk(data, func(field int, value []byte) error {
		switch field {
		case 1: // metadata
			return readMeta(value, &out.ObjectMeta)
		case 2:
			return out.Spec.Unmarshal(value)
		case 3:
			return out.Status.Unmarshal(value)
		}
		return nil
	})
}

func readSlice(data []byte, out *discoveryv1.EndpointSlice) error {
	out.Endpoints = make([]discoveryv1.Endpoint, 0, count(data, 2))
	return walk(data, func(field int, value []byte) error {
		switch field {
		case 1: // metadata
			return readMeta(value, &out.ObjectMeta)
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

func readMeta(data []byte, out *metav1.ObjectMeta) error {
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
			return readEntry(value, &out.Labels, isLabel)
		case 12:
			return readEntry(value, &out.Annotations, isAnnotation)
		}
		return nil
	})
}

// isLabel reports whether a key is that of a label that the proxy reads.
func isLabel(key []byte) bool {
	switch string(key) {
	case model.LabelServiceName, model.LabelHeadless, model.LabelServiceProxyName:
		return true
	}
	return false
}

// isAnnotation reports whether a key is that of an annotation that the proxy reads.
func isAnnotation(key []byte) bool {
	switch string(key) {
	case corev1.EndpointsLastChangeTriggerTime, metav1.InitialEventsAnnotationKey: // of the bookmark after these events
		return true
	}
	return slices.ContainsFunc(model.Annotations[:], func(a model.Annotation) bool { return a.Name == string(key) })
}

// readEntry reads an entry of a map, if somebody wants its key.
func readEntry(data []byte, to *map[string]string, isWanted func(key []byte) bool) error {
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
	if isWanted(key) {
		if *to == nil {
			*to = map[string]string{}
		}
		(*to)[string(key)] = string(text)
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
