package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8sjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const proxyKind = "KubeProxyConfiguration"

// maxFile limits the size of a file: a ConfigMap can have 1 MiB.
const maxFile = 4 << 20

// decode reads data into out, a pointer to a struct of the kind want. It returns an error in odd for each field that is
// unknown or there twice.
func decode(data []byte, out any, want schema.GroupVersionKind) (odd []error, err error) {
	text, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, err
	}
	have, err := k8sjson.DefaultMetaFactory.Interpret(text)
	if err != nil {
		return nil, fmt.Errorf("not an object: want apiVersion %s, kind %s", want.GroupVersion(), want.Kind)
	}
	if *have != want {
		return nil, fmt.Errorf("apiVersion %.100q, kind %.100q: want %s, %s", have.GroupVersion(), have.Kind,
			want.GroupVersion(), want.Kind)
	}
	if _, err := yaml.YAMLToJSONStrict(data); err != nil {
		odd = append(odd, errors.New(strings.ReplaceAll(err.Error(), "\n ", "")))
	}
	unknown, err := kjson.UnmarshalStrict(text, out)
	if _, named := errors.AsType[*json.UnmarshalTypeError](err); err != nil && !named {
		err = fmt.Errorf("%s: %w", refused(text), err)
	}
	return append(odd, unknown...), err
}

// refused returns the path of the field that cannot be read. It is for values that unmarshal themselves, like
// durations: the decoder does not name their fields.
func refused(text []byte) string {
	var all map[string]any
	scratch := both{new(proxyconfig.KubeProxyConfiguration), new(VmapdConfiguration)}
	_ = json.Unmarshal(text, &all)
	for _, s := range settings {
		value, found, _ := unstructured.NestedFieldNoCopy(all, strings.Split(s.field, ".")...)
		one, _ := json.Marshal(value)
		if found && json.Unmarshal(one, scratch.field(s.field).Addr().Interface()) != nil {
			return s.field
		}
	}
	return "a field"
}

// both are the two configurations, which have no path in common.
type both struct {
	*proxyconfig.KubeProxyConfiguration
	*VmapdConfiguration
}

// field returns a field. Path has the names in a file.
func (b both) field(path string) (v reflect.Value) {
	in := []reflect.Value{reflect.ValueOf(b.KubeProxyConfiguration).Elem(), reflect.ValueOf(b.VmapdConfiguration).Elem()}
	for name := range strings.SplitSeq(path, ".") {
		for _, of := range in {
			for f, value := range of.Fields() {
				if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name {
					v = value
				}
			}
		}
		in = []reflect.Value{v}
	}
	return v
}
