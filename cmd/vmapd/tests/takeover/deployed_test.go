package takeover

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// patched applies a file as kubectl patch does.
func patched(t *testing.T, ds *appsv1.DaemonSet, file string) *appsv1.DaemonSet {
	t.Helper()
	patch, err := yaml.ToJSON([]byte(testaid.Read(t, filepath.Join(vmapdtest.Folder(t), "deploy", file))))
	if err != nil {
		t.Fatal(err)
	}
	original, err := json.Marshal(ds)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := strategicpatch.StrategicMergePatch(original, patch, appsv1.DaemonSet{})
	if err != nil {
		t.Fatal(err)
	}
	var out appsv1.DaemonSet
	in := json.NewDecoder(bytes.NewReader(merged))
	in.DisallowUnknownFields() // a field of the patch that no DaemonSet has
	if err := in.Decode(&out); err != nil {
		t.Fatal(err)
	}
	return &out
}

// mount writes the files that a container gets from a ConfigMap into a folder, and returns
// where the container has them.
func mount(t *testing.T, pod *corev1.PodSpec, c *corev1.Container, files *corev1.ConfigMap, dir string) string {
	t.Helper()
	for name, text := range files.Data {
		testaid.Write(t, filepath.Join(dir, name), text)
	}
	for _, v := range pod.Volumes {
		for _, m := range c.VolumeMounts {
			if m.Name == v.Name && v.ConfigMap != nil && v.ConfigMap.Name == files.Name {
				return m.MountPath
			}
		}
	}
	t.Fatalf("%s does not mount ConfigMap %s", c.Name, files.Name)
	return ""
}

// load loads the configuration of a container on the node of the lab. Its arguments are
// changed before: files are elsewhere.
func load(t *testing.T, c *corev1.Container, change func(string) string) (*config.Flags, *config.Config) {
	t.Helper()
	var flags config.Flags
	set := pflag.NewFlagSet(c.Name, pflag.ContinueOnError)
	flags.AddFlags(set)
	if err := set.Parse(arguments(t, c, change)); err != nil || set.NArg() > 0 {
		t.Fatalf("%v: %v", c.Args, err)
	}
	conf, err := config.Load(&flags)
	if err != nil {
		t.Fatal(err)
	}
	return &flags, conf
}

// arguments returns a container's arguments on the node of the lab.
func arguments(t *testing.T, c *corev1.Container, change func(string) string) []string {
	t.Helper()
	variables := []string{}
	for _, e := range c.Env {
		if e.ValueFrom == nil || e.ValueFrom.FieldRef == nil || e.ValueFrom.FieldRef.FieldPath != "spec.nodeName" {
			t.Fatalf("%s: variable %s is not the Node's name", c.Name, e.Name)
		}
		variables = append(variables, "$("+e.Name+")", lab.NodeName)
	}
	var args []string
	for _, a := range c.Args {
		args = append(args, change(strings.NewReplacer(variables...).Replace(a)))
	}
	return args
}
