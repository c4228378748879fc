package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// A field that nobody has said anything about must not come in unnoticed.
func TestEveryFieldIsInTheTable(t *testing.T) {
	for _, tt := range []struct {
		own bool
		of  reflect.Type
	}{
		{false, reflect.TypeFor[proxyconfig.KubeProxyConfiguration]()},
		{true, reflect.TypeFor[VmapdConfiguration]()},
	} {
		want, got := map[string]int{}, map[string]int{}
		for _, path := range leaves(tt.of) {
			want[path] = 1
		}
		for _, s := range settings {
			if s.field != "" && s.own == tt.own {
				got[s.field]++
			}
		}
		if len(want) < 8 {
			t.Errorf("%v: found only %d fields", tt.of, len(want))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("fields of %v (-), the table (+):\n%s", tt.of, diff)
		}
	}
}

// A default or a check of a field that the page does not have would be lost.
func TestEveryRuleIsOfAField(t *testing.T) {
	for field := range rules {
		if settingOf(field, "").field == "" {
			t.Errorf("%s is not in the table", field)
		}
	}
}

// leaves returns the paths of the fields in a file that are no sections.
func leaves(t reflect.Type) []string {
	unmarshaler := reflect.TypeFor[interface{ UnmarshalJSON([]byte) error }]()
	var all []string
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "" || name == "apiVersion" || name == "kind":
		case f.Type.Kind() != reflect.Struct || reflect.PointerTo(f.Type).Implements(unmarshaler):
			all = append(all, name)
		default:
			for _, l := range leaves(f.Type) {
				all = append(all, name+"."+l)
			}
		}
	}
	return all
}

func TestEveryFlagIsInTheTable(t *testing.T) {
	var f Flags
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.AddFlags(fs)
	want, got := map[string]bool{}, map[string]bool{}
	fs.VisitAll(func(flag *pflag.Flag) {
		want[flag.Name] = true
		if flag.Usage == "" {
			t.Errorf("--%s: nothing says what it is", flag.Name)
		}
	})
	for _, s := range settings {
		if s.flag != "" {
			got[s.flag] = true
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("flags (-), the table (+):\n%s", diff)
	}
}

// kube-proxy's flags keep their names, types and defaults, but for what stands here.
func TestFlagsAreAsKubeProxyHasThem(t *testing.T) {
	var f Flags
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.AddFlags(fs)
	for line := range strings.Lines(testaid.Read(t, "testdata/kube-proxy.flags")) {
		line = strings.TrimSpace(line)
		name, want, _ := strings.Cut(line, " ")
		flag := fs.Lookup(name)
		if flag == nil {
			t.Errorf("there is no --%s", name)
			continue
		}
		if got := strings.TrimSpace(flag.Value.Type() + " " + flag.DefValue); got != want {
			t.Errorf("--%s: got %s, want %s", name, got, want)
		}
	}
}

const document = "../../docs/configuration.md"

// The tables in the documentation are those of the code.
func TestTheDocumentIsUpToDate(t *testing.T) {
	testaid.Tables(t, document, map[string]string{"gates": gateTable(), "annotations": annotationTable()})
}

func annotationTable() string {
	var b strings.Builder
	b.WriteString("\n| Annotation | Value | For example | Without it, or if it is invalid |\n|---|---|---|---|\n")
	for _, a := range model.Annotations {
		fmt.Fprintf(&b, "| `%s` | %s | `%s` | %s |\n", a.Name, a.Sets, strings.Join(a.Examples, "`, `"), a.Otherwise)
	}
	return b.String() + "\n"
}

func gateTable() string {
	var b strings.Builder
	b.WriteString("\n| Gate | Effect |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", name, gates[name])
	}
	return b.String() + "\n"
}
