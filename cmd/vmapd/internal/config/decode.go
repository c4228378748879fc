package config

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8sjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const proxyKind = "KubeProxyConfiguration"

// maxFile limits the size of a file: a ConfigMap can have 1 MiB.
const maxFile = 4 << 20

func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, errors.Unwrap(err))
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: larger than %d bytes", path, maxFile)
	}
	return data, nil
}

// decode reads data into out, which is of the kind want. It first reads strictly; if only
// strictness fails, it reads again, and returns the strict errors in odd.
func decode(data []byte, out runtime.Object, want schema.GroupVersionKind) (odd []string, err error) {
	text, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, err
	}
	if err := checkKind(text, want); err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(want, out)
	for _, strict := range []bool{true, false} {
		s := k8sjson.NewSerializerWithOptions(k8sjson.DefaultMetaFactory, scheme, scheme,
			k8sjson.SerializerOptions{Yaml: true, Strict: strict})
		_, _, err = s.Decode(data, nil, out)
		strictErr, ok := runtime.AsStrictDecodingError(err)
		if !ok {
			break
		}
		for _, e := range strictErr.Errors() {
			for line := range strings.SplitSeq(strings.TrimPrefix(e.Error(), "yaml: unmarshal errors:\n"), "\n") {
				odd = append(odd, strings.TrimSpace(line))
			}
		}
	}
	if err != nil {
		if fields := locate("", text, reflect.ValueOf(out).Elem()); len(fields) > 0 {
			return nil, errors.Join(fields...)
		}
		return nil, err
	}
	if n := documents(data); n > 1 {
		odd = append(odd, fmt.Sprintf("only the first of %d documents is read", n))
	}
	return odd, nil
}

// checkKind returns an error of one line if a file is of another kind.
func checkKind(text []byte, want schema.GroupVersionKind) error {
	var have metav1.TypeMeta
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &have); err != nil {
		return fmt.Errorf("not an object: want apiVersion %s, kind %s", want.GroupVersion(), want.Kind)
	}
	if have.GroupVersionKind() != want {
		return fmt.Errorf("apiVersion %.100q, kind %.100q: want %s, %s", have.APIVersion, have.Kind,
			want.GroupVersion(), want.Kind)
	}
	return nil
}

// locate reads each field alone, and returns an error for each that can't be read, with its path: the decoder
// stops at the first, and does not name fields that unmarshal themselves, like durations.
func locate(path string, text []byte, out reflect.Value) []error {
	var fields map[string]json.RawMessage
	if !isSection(out.Type()) || kjson.UnmarshalCaseSensitivePreserveInts(text, &fields) != nil {
		err := kjson.UnmarshalCaseSensitivePreserveInts(text, out.Addr().Interface())
		if err == nil {
			return nil
		}
		out.SetZero()
		return []error{fmt.Errorf("%s: %w", path, err)}
	}
	var errs []error
	for _, f := range fieldsOf(out.Type()) {
		if part, ok := fields[f.name]; ok {
			field := out.FieldByIndex(f.index)
			errs = append(errs, locate(strings.TrimPrefix(path+"."+f.name, "."), part, field)...)
		}
	}
	return errs
}

// documents counts the documents of a YAML file that are not empty.
func documents(data []byte) int {
	n := 0
	for r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		doc, err := r.Read()
		if err != nil {
			return n
		}
		var value any
		if yaml.Unmarshal(doc, &value) != nil || value != nil {
			n++
		}
	}
}

// member is a field of a section: its name in the file, its type, and its index in Go.
type member struct {
	name  string
	of    reflect.Type
	index []int
}

// isSection reports whether t is a struct that has fields in the file, rather than a value that unmarshals itself.
func isSection(t reflect.Type) bool {
	unmarshaler := reflect.TypeFor[interface{ UnmarshalJSON([]byte) error }]()
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(unmarshaler)
}

// fieldsOf returns the fields of a section, in Go's order, without apiVersion and kind.
func fieldsOf(t reflect.Type) []member {
	var all []member
	for _, f := range reflect.VisibleFields(t) {
		// An embedded struct has no name; its fields follow.
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "apiVersion" && name != "kind" {
			all = append(all, member{name, f.Type, f.Index})
		}
	}
	return all
}

// leaves returns the settings in a section, by their paths, in Go's order.
func leaves(t reflect.Type) []member {
	var all []member
	for _, m := range fieldsOf(t) {
		if !isSection(m.of) {
			all = append(all, m)
			continue
		}
		for _, l := range leaves(m.of) {
			all = append(all, member{m.name + "." + l.name, l.of, slices.Concat(m.index, l.index)})
		}
	}
	return all
}
