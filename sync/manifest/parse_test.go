package manifest

// Addresses: pods 10.0.0.0/8, cluster IPs 172.30.0.0/16, nodes 192.168.0.0/24,
// external IPs 192.168.99.0/24, outside 203.0.113.0/24.

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// texts are the errors as a user sees them.
func texts(errs []error) []string {
	var out []string
	for _, e := range errs {
		out = append(out, e.Error())
	}
	return out
}

// refs are the objects in order.
func refs(o *Objects) []string {
	var out []string
	for _, obj := range o.list {
		out = append(out, obj.ref.String())
	}
	return out
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   string
		refs []string
		errs []string
	}{
		{name: "nothing", in: ""},
		{name: "comments and empty documents", in: "# a\n---\n\n---\n# b\n--- # c\nnull\n...\n"},
		{
			name: "carriage returns and a byte order mark",
			in:   "\xef\xbb\xbfapiVersion: v1\r\nkind: Node\r\nmetadata:\r\n  name: a\r\n---\r\napiVersion: v1\r\nkind: Node\r\nmetadata:\r\n  name: b\r\n",
			refs: []string{"Node a", "Node b"},
		},
		{
			name: "JSON, one value after the other",
			in:   "{\"apiVersion\": \"v1\",\n\t\"kind\": \"Node\", \"metadata\": {\"name\": \"a\"}}\n{\"apiVersion\": \"v1\", \"kind\": \"Node\", \"metadata\": {\"name\": \"\\ud83d\\ude00\\/b\"}}",
			refs: []string{"Node a", "Node 😀/b"},
		},
		{
			name: "unknown fields are errors, also those with other capitals",
			in:   "apiVersion: v1\nkind: Service\nmetadata: {name: web, shoe: 42}\nspec: {hat: [1, {}], ports: [{port: 80, nodeport: 1}]}\n",
			errs: []string{
				"in.yaml:1: Service default/web: unknown field \"metadata.shoe\"",
				"in.yaml:1: Service default/web: unknown field \"spec.hat\"",
				"in.yaml:1: Service default/web: unknown field \"spec.ports[0].nodeport\"",
			},
		},
		{
			name: "keys that are there twice",
			in: "apiVersion: v1\nkind: Node\nmetadata: {name: a}\nkind: Service\n---\n" +
				`{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "spec": {}, "spec": {}}`,
			errs: []string{`in.yaml:1: yaml: unmarshal errors: line 4: key "kind" already set in map`, `in.yaml:6: Node a: duplicate field "spec"`},
		},
		{
			name: "names that break lines",
			in:   "apiVersion: v1\nkind: Node\nmetadata: {name: \"a\\n\\e[31mb\", labels: 1}\n",
			errs: []string{`in.yaml:1: Node a\n\x1b[31mb: json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type map[string]string`},
		},
	} {
		t.Run(tt.name, func(t *testing.T) { checkParsed(t, tt.in, tt.refs, tt.errs) })
	}
}

// checkParsed checks which objects, and which errors, a manifest has.
func checkParsed(t *testing.T, in string, wantRefs, wantErrs []string) {
	t.Helper()
	o, errs := Parse("in.yaml", []byte(in))
	testaid.Equal(t, "objects", wantRefs, refs(o))
	testaid.Equal(t, "errors", wantErrs, texts(errs))
}

// Each archive has a manifest, and the objects and errors that it has, a line each.
func TestParseArchives(t *testing.T) {
	paths, err := filepath.Glob("testdata/parse/*.txtar")
	if err != nil || len(paths) < 6 {
		t.Fatalf("found %q, %v", paths, err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			a := txtar.Parse([]byte(testaid.Read(t, path)))
			part := func(i int) string { return strings.TrimSuffix(string(a.Files[i].Data), "\n") }
			split := func(i int) (lines []string) {
				if part(i) != "" {
					lines = strings.Split(part(i), "\n")
				}
				return lines
			}
			checkParsed(t, part(0)+"\n", split(1), split(2))
		})
	}
}

func TestParseNamesWhatItDoesNotRead(t *testing.T) {
	o, errs := Parse("in.yaml", []byte(`apiVersion: apps/v1
kind: Deployment
---
apiVersion: apps/v1
kind: Deployment
spec: {anything: [goes]}
---
apiVersion: v1
kind: Servce
---
apiVersion: example.com/v1
kind: Basket
items: {not: a list}
`))
	if len(errs) > 0 || o.Len() > 0 {
		t.Fatal(refs(o), errs)
	}
	want := "ignored objects of other kinds: apps/v1 Deployment, example.com/v1 Basket, v1 Servce"
	if got := o.Unread(); got != want {
		t.Errorf("want %q, got %q", want, got)
	}
	if o, _ := Parse("in.yaml", []byte(service("a", 1))); o.Unread() != "" {
		t.Errorf("of a Service: %q", o.Unread())
	}
}

func TestParseCapsWhatItSays(t *testing.T) {
	_, errs := Parse("in.yaml", []byte(strings.Repeat("- a\n---\n", 1000)))
	if len(errs) != maxErrors+1 || errs[maxErrors].Error() != "in.yaml:201: this and later errors are left out" {
		t.Errorf("got %d errors, the last is %v", len(errs), errs[len(errs)-1])
	}
}
