package config_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeproxyv1alpha1 "k8s.io/kube-proxy/config/v1alpha1"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// valuesSchema describes the values of the Helm chart.
const valuesSchema = "../../deploy/chart/values.schema.json"

// A field that no configuration has, or one of a wrong type, is refused before anything is installed. A daemon
// that does not start with its files would be the other answer.
func TestTheChartsSchemaIsUpToDate(t *testing.T) {
	text := testaid.Read(t, valuesSchema)
	var got struct {
		Properties map[string]any `json:"properties"`
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	theirs := schemaOf(reflect.TypeFor[kubeproxyv1alpha1.KubeProxyConfiguration]())
	fields := theirs["properties"].(map[string]any)
	// The chart sets this one.
	delete(fields["clientConnection"].(map[string]any)["properties"].(map[string]any), "kubeconfig")
	fields["winkernel"] = map[string]any{"type": "object"} // its fields mean nothing
	for name, want := range map[string]map[string]any{"config": theirs, "vmapdConfig": schemaOf(reflect.TypeFor[config.VmapdConfiguration]())} {
		if *testaid.Update {
			rewriteSchema(t, name, want)
			continue
		}
		if diff := cmp.Diff(want, got.Properties[name]); diff != "" {
			t.Errorf("%s in %s (-want +got), make golden rewrites it:\n%s", name, valuesSchema, diff)
		}
	}
}

func rewriteSchema(t *testing.T, name string, want map[string]any) {
	t.Helper()
	text := testaid.Read(t, valuesSchema)
	var all map[string]any
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatal(err)
	}
	all["properties"].(map[string]any)[name] = want
	changed, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	testaid.Write(t, valuesSchema, string(changed)+"\n")
}

// schemaOf returns the JSON schema of a type, as encoding/json makes it.
func schemaOf(t reflect.Type) map[string]any {
	if t == reflect.TypeFor[metav1.Duration]() {
		return map[string]any{"type": "string"}
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return map[string]any{} // it may have several forms, and reads them itself
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32:
		return map[string]any{"type": "integer"}
	case reflect.Float32:
		return map[string]any{"type": "number"}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case reflect.Struct:
		return map[string]any{"type": "object", "additionalProperties": false, "properties": properties(t)}
	default:
		return map[string]any{"type": "string"}
	}
}

func properties(t reflect.Type) map[string]any {
	all := map[string]any{}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Type == reflect.TypeFor[metav1.TypeMeta]() || name == "-":
		case strings.Contains(options, "inline"), f.Anonymous && name == "":
			maps.Copy(all, properties(f.Type))
		default:
			all[name] = schemaOf(f.Type)
		}
	}
	return all
}
