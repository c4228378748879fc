package manifest

// Addresses: pods 10.0.0.0/8, cluster IPs 172.30.0.0/16, nodes 192.168.0.0/24,
// external IPs 192.168.99.0/24, outside 203.0.113.0/24.

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
			name: "every kind that the proxy reads",
			in: `apiVersion: v1
kind: Service
metadata: {name: web, namespace: ns1}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-1
---
{apiVersion: v1, kind: Node, metadata: {name: node1, namespace: ignored}}
---
apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: kubernetes}
...
%YAML 1.2
---
apiVersion: networking.k8s.io/v1beta1
kind: ServiceCIDR
metadata: {name: more}
`,
			refs: []string{"Service ns1/web", "EndpointSlice default/web-1", "Node node1", "ServiceCIDR kubernetes", "ServiceCIDR more"},
		},
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
			name: "lists, also in lists, and items of typed lists without a kind",
			in: `apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: a}
- apiVersion: v1
  kind: NodeList
  items:
  - metadata: {name: b}
  - {kind: Node, metadata: {name: c}}
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSliceList
  items: []
- apiVersion: v1
  kind: ServiceList
`,
			refs: []string{"Node a", "Node b", "Node c"},
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
			name: "anchors, aliases and merge keys",
			in: `apiVersion: v1
kind: List
items:
- &a
  apiVersion: v1
  kind: Node
  metadata: {name: a}
- apiVersion: v1
  kind: Node
  metadata: {name: b, labels: &b {c: d}}
- apiVersion: v1
  kind: Node
  metadata:
    name: c
    labels: {<<: *b}
---
<<: {kind: Node}
apiVersion: v1
kind: Node
metadata: {name: d}
`,
			refs: []string{"Node a", "Node b", "Node c"},
			errs: []string{`in.yaml:17: yaml: unmarshal errors: line 19: key "kind" already set in map`},
		},
		{
			name: "bad syntax costs the document",
			in: `apiVersion: v1
kind: Node
metadata: {name: a}
---
apiVersion: v1
kind: Node
metadata: {name: b
---
apiVersion: v1
kind: Node
	metadata: {name: c}
---
{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "d"}}
{"apiVersion": "v1",
 "kind": "Node" "metadata": {"name": "e"}}
---
apiVersion: v1
kind: Node
metadata: {name: f}
`,
			refs: []string{"Node a", "Node d", "Node f"},
			errs: []string{
				`in.yaml:5: yaml: line 7: did not find expected ',' or '}'`,
				`in.yaml:9: yaml: line 11: found a tab character that violates indentation`,
				`in.yaml:13: what follows the JSON: invalid character '"' after object key:value pair`,
			},
		},
		{
			name: "a wrong type costs the object",
			in: `apiVersion: v1
kind: Service
metadata:
  name: web
  labels:
    a: yes
spec:
  clusterIP: 1.5
  ports:
  - name: http
    port: "80"
    targetPort: [http]
  - port: 80.5
    nodePort: 99999999999
    protocol:
      TCP
  - 80
  externalIPs: 192.168.99.1
  publishNotReadyAddresses: 1
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {name: good}
- apiVersion: v1
  kind: Service
  metadata:
    name: bad
    creationTimestamp: yesterday
    namespace: ns2
  spec:
    ports: {}
`,
			refs: []string{"Service default/good"},
			errs: []string{
				`in.yaml:1: Service default/web: json: cannot unmarshal array into Go struct field ServicePort.spec.ports.targetPort of type int32`,
				`in.yaml:21: Service ns2/bad: parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006"`,
			},
		},
		{
			name: "objects that don't say what or who they are",
			in: `kind: Service
---
apiVersion: v1
---
apiVersion: v1
kind: 5
---
apiVersion: v1
kind: Service
metadata:
  namespace: ns1
---
apiVersion: v1
kind: Node
---
- a
---
hello
---
apiVersion: v1
kind: List
items: {}
---
apiVersion: v1
kind: List
items: [1]
---
apiVersion: v1
kind: Service
metadata: {name: 123}
`,
			errs: []string{
				`in.yaml:1: Service: every object needs an apiVersion and a kind`,
				`in.yaml:3: every object needs an apiVersion and a kind`,
				`in.yaml:5: every object needs an apiVersion and a kind`,
				`in.yaml:8: Service: metadata.name is missing`,
				`in.yaml:13: Node: metadata.name is missing`,
				`in.yaml:16: every object needs an apiVersion and a kind`,
				`in.yaml:18: every object needs an apiVersion and a kind`,
				`in.yaml:20: List: json: cannot unmarshal object into Go struct field .items of type []json.RawMessage`,
				`in.yaml:24: every object needs an apiVersion and a kind`,
				`in.yaml:28: Service: json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string`,
			},
		},
		{
			name: "the second of two objects of one name is refused",
			in:   "apiVersion: v1\nkind: Node\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Node\nmetadata: {name: a}\n",
			refs: []string{"Node a"},
			errs: []string{"in.yaml:5: Node a: is already defined at in.yaml:1: this one is ignored"},
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
		t.Run(tt.name, func(t *testing.T) {
			o, errs := Parse("in.yaml", []byte(tt.in))
			if diff := cmp.Diff(tt.refs, refs(o)); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.errs, texts(errs)); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
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
