package charttest

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"
)

// objects are those of a manifest, by kind and name.
type objects map[string]map[string]any

func parse(t *testing.T, text string) objects {
	t.Helper()
	all := objects{}
	for doc := range strings.SplitSeq("\n"+text, "\n---\n") {
		var object map[string]any
		if err := yaml.UnmarshalStrict([]byte(doc), &object); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		if object != nil {
			all[key(t, object)] = object
		}
	}
	return all
}

func key(t *testing.T, object map[string]any) string {
	t.Helper()
	metadata, ok := object["metadata"].(map[string]any)
	if !ok {
		t.Fatalf("no metadata: %v", object)
	}
	return object["kind"].(string) + " " + metadata["name"].(string)
}

// manifest returns the objects of a file of the folder deploy.
func manifest(t *testing.T, name string) objects {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deploy, name))
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(text))
}

// hashed is the name of a ConfigMap with the hash of its content; the manifest's has none.
var hashed = regexp.MustCompile(`\bvmapd-[0-9a-z]{10}\b`)

// compare compares objects, and texts in ConfigMaps by what they say. What else a ConfigMap with a hash has is left out.
func compare(t *testing.T, want, got objects) {
	t.Helper()
	if diff := cmp.Diff(normal(t, want), normal(t, got)); diff != "" {
		t.Errorf("objects (-manifest +rendered):\n%s", diff)
	}
}

func normal(t *testing.T, all objects) map[string]any {
	t.Helper()
	out := map[string]any{}
	for key, object := range all {
		switch object["kind"] {
		case "DaemonSet":
			text := hashed.ReplaceAllString(toYAML(t, object), "vmapd")
			object = map[string]any{}
			if err := yaml.Unmarshal([]byte(text), &object); err != nil {
				t.Fatal(err)
			}
			out[key] = daemonSet(t, object)
		case "ConfigMap":
			read := map[string]any{}
			for name, text := range object["data"].(map[string]any) {
				var value any
				if err := yaml.UnmarshalStrict([]byte(text.(string)), &value); err != nil {
					t.Fatalf("%s: %s: %v", key, name, err)
				}
				read[name] = value
			}
			metadata := maps.Clone(object["metadata"].(map[string]any))
			if hashed.MatchString(key) {
				key = hashed.ReplaceAllString(key, "vmapd")
				metadata["name"] = "vmapd"
				delete(metadata, "annotations")
				delete(metadata, "labels")
			}
			out[key] = []any{metadata, read, object["immutable"]}
		default:
			out[key] = object
		}
	}
	return out
}

// merged merges YAML objects; later values go first.
func merged(t *testing.T, texts ...string) string {
	t.Helper()
	all := map[string]any{}
	for _, text := range texts {
		var next map[string]any
		if err := yaml.UnmarshalStrict([]byte(text), &next); err != nil {
			t.Fatal(err)
		}
		all = loader.MergeMaps(all, next)
	}
	return toYAML(t, all)
}

func toYAML(t *testing.T, value any) string {
	t.Helper()
	text, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// at returns a part of an object.
func at(o objects, key string, path ...string) map[string]any {
	part := o[key]
	for _, p := range path {
		part = part[p].(map[string]any)
	}
	return part
}

// patch applies a file to the DaemonSet, as kubectl patch does.
func patch(t *testing.T, o objects, file string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deploy, file))
	if err != nil {
		t.Fatal(err)
	}
	change, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	original, err := json.Marshal(o["DaemonSet vmapd"])
	if err != nil {
		t.Fatal(err)
	}
	out, err := strategicpatch.StrategicMergePatch(original, change, appsv1.DaemonSet{})
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(out, &object); err != nil {
		t.Fatal(err)
	}
	o["DaemonSet vmapd"] = object
}
