package manifest

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model"
)

func nested(open, inner, end string, n int) string {
	return strings.Repeat(open, n) + inner + strings.Repeat(end, n)
}

// bomb is a document of n anchors, each of which repeats the one before it ten
// times.
func bomb(n int, head, last string) string {
	var b strings.Builder
	b.WriteString(head)
	b.WriteString("x0: &x0 [lol]\n")
	for i := 1; i < n; i++ {
		fmt.Fprintf(&b, "x%d: &x%d [%s]\n", i, i, strings.Repeat(fmt.Sprintf("*x%d, ", i-1), 10))
	}
	fmt.Fprintf(&b, last, n-1)
	return b.String()
}

func mebibytes(s string, n int) string { return strings.Repeat(s, n<<20/len(s)) }

// Whatever the input: few errors of one line each, soon, in bounded memory.
func TestHostileInput(t *testing.T) {
	service := "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n"
	for _, tt := range []struct {
		name string
		in   string
		want string // the only error
	}{
		{"a NUL byte", "apiVersion: v1\nkind: \x00", "in:1: yaml: control characters are not allowed"},
		{"binary", "\n\x7fELF\xff\xfe" + mebibytes("\xff\xaa\x01\n", 10), "in:1: yaml: control characters are not allowed"},
		{"too large", mebibytes("# comment\n", 65), "in:1: file is larger than 64 MiB"},
		{"a quote that does not end", `"` + mebibytes("a\n", 1), "in:1: yaml: line 524290: found unexpected end of stream"},
		{"lists too deep", nested("[", "a", "]", 10_001), "in:1: yaml: exceeded max depth of 10000"},
		{"an anchor in itself", service + "spec: &a {ports: [*a]}", `in:1: yaml: anchor 'a' value contains itself`},
		{"a bomb where nothing is read", bomb(60, "", "x: *x%d\n"), "in:1: yaml: document contains excessive aliasing"},
		{"a bomb where a list of text is", bomb(60, service, "spec: {externalIPs: *x%d}\n"), ""},
		{"a bomb of objects", func() string {
			var b strings.Builder
			b.WriteString("apiVersion: v1\nkind: List\nitems:\n- &x0 {apiVersion: v1, kind: Pod}\n")
			for i := 1; i < 60; i++ {
				fmt.Fprintf(&b, "- &x%d {apiVersion: v1, kind: List, items: [%s]}\n", i, strings.Repeat(fmt.Sprintf("*x%d, ", i-1), 10))
			}
			return b.String()
		}(), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if testing.Short() && len(tt.in) > 1<<20+64 {
				t.Skip("short: large input")
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			_, errs := Parse("in", []byte(tt.in))
			took := time.Since(start)
			runtime.ReadMemStats(&after)
			t.Logf("%d bytes: %v, %d MiB allocated", len(tt.in), took.Round(time.Millisecond), (after.TotalAlloc-before.TotalAlloc)>>20)
			if took > time.Minute {
				t.Errorf("took %v", took)
			}
			if tt.want != "" && (len(errs) != 1 || errs[0].Error() != tt.want) {
				t.Errorf("want %q, got %d: %.300q", tt.want, len(errs), texts(errs))
			}
			if tt.want == "" && (len(errs) == 0 || len(errs) > maxErrors+1) {
				t.Errorf("got %d errors: %.300q", len(errs), texts(errs))
			}
			for _, e := range errs {
				if len(e.Error()) > 1000 || strings.ContainsAny(e.Error(), "\n\r\x00") {
					t.Errorf("not a line: %.300q", e.Error())
				}
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 80}]}\n",
		"apiVersion: v1\nkind: List\nitems:\n- &a {apiVersion: v1, kind: Node, metadata: {name: a}}\n- <<: *a\n",
		`{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"a"},"endpoints":[{"addresses":["10.180.0.1"]}]}`,
		"--- # a\n...\n%YAML 1.2\n---\na: |\n  b\n",
		bomb(9, "", "x: *x%d"),
		"\xef\xbb\xbf? a\n: !!str b\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o, errs := Parse("in", data)
		for _, e := range errs {
			if strings.ContainsAny(e.Error(), "\n\r\x00") {
				t.Errorf("not a line: %q", e.Error())
			}
		}
		for _, obj := range o.list {
			if obj.ref.Name == "" {
				t.Errorf("object without a name: %v", obj.ref)
			}
			p := model.Problem{Object: obj.ref, Field: "spec.ports[0].port"}
			if got := o.Located(p); !strings.HasPrefix(got, "in:") {
				t.Errorf("%v: not located: %s", obj.ref, got)
			}
		}
		// Reading is deterministic.
		again, errsAgain := Parse("in", data)
		if again.Len() != o.Len() || len(errsAgain) != len(errs) {
			t.Errorf("second run: %d objects and %d errors, then %d and %d", o.Len(), len(errs), again.Len(), len(errsAgain))
		}
	})
}
