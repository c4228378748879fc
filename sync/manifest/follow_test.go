package manifest

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
)

// recorder is a builder that writes down what it is told.
type recorder struct{ calls []string }

func (r *recorder) add(format string, args ...any) {
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
}

func (r *recorder) SetService(s model.Service)                 { r.add("set service %v", s.NamespacedName) }
func (r *recorder) DeleteService(n model.NamespacedName)       { r.add("delete service %v", n) }
func (r *recorder) SetEndpointSlice(s model.EndpointSlice)     { r.add("set slice %v", s.NamespacedName) }
func (r *recorder) DeleteEndpointSlice(n model.NamespacedName) { r.add("delete slice %v", n) }
func (r *recorder) SetNode(n model.Node)                       { r.add("set node %s", n.Name) }
func (r *recorder) DeleteNode(name string)                     { r.add("delete node %s", name) }
func (r *recorder) SetServiceCIDR(c model.ServiceCIDR)         { r.add("set cidr %s", c.Name) }
func (r *recorder) DeleteServiceCIDR(name string)              { r.add("delete cidr %s", name) }

func object4(name string) string {
	return fmt.Sprintf(`---
{apiVersion: v1, kind: Service, metadata: {name: %[1]s}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: %[1]s}}
---
{apiVersion: v1, kind: Node, metadata: {name: %[1]s}}
---
{apiVersion: networking.k8s.io/v1, kind: ServiceCIDR, metadata: {name: %[1]s}}
`, name)
}

// Only what differs is written: nothing for a file that is written again with the
// same objects in another order and layout.
func TestOnlyDifferencesAreWritten(t *testing.T) {
	dir := t.TempDir()
	f := follower{log: slog.New(slog.DiscardHandler), tree: newTree([]string{dir})}
	step := func(want ...string) {
		t.Helper()
		var r recorder
		edits, _ := f.change(t.Context(), f.tree.refresh())
		for _, edit := range edits {
			edit(&r)
		}
		slices.Sort(r.calls)
		if diff := cmp.Diff(want, r.calls); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	}
	all := func(verb, name string) []string {
		return []string{verb + " cidr " + name, verb + " node " + name, verb + " service default/" + name, verb + " slice default/" + name}
	}
	step()
	write(t, dir+"/a.yaml", object4("a"))
	step(all("set", "a")...)
	step()
	write(t, dir+"/b.yaml", object4("b"))
	step(all("set", "b")...)
	write(t, dir+"/b.yaml", "# comment\n"+service("c", 1)+object4("b"))
	step("set service default/c")
	// Moved to another file: nothing changes.
	write(t, dir+"/b.yaml", object4("b"))
	write(t, dir+"/c.yaml", service("c", 1))
	step()
	write(t, dir+"/c.yaml", service("c", 2))
	step("set service default/c")
	must(t, os.Remove(dir+"/a.yaml"))
	step(all("delete", "a")...)
	// What wasn't read again is the same value still, and costs a comparison of
	// pointers.
	before := f.objects.byRef[f.objects.list[0].ref]
	write(t, dir+"/c.yaml", service("c", 3))
	step("set service default/c")
	if f.objects.byRef[before.ref] != before {
		t.Error("an unchanged file was parsed again")
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/m/b.yaml", service("b", 2)+service("a", 3))
	write(t, dir+"/m/a.yaml", service("a", 1))
	write(t, dir+"/m/x/c.json", "{")
	write(t, dir+"/m/empty.yaml", "")
	write(t, dir+"/z.txt", "apiVersion: v1\nkind: Pod\n---\n"+service("z", 4))
	o, errs := Load([]string{dir + "/z.txt", dir + "/m", dir + "/m/a.yaml", dir + "/none"})
	wantErrs := []string{
		dir + "/m/x/c.json:1: unexpected end of JSON",
		dir + "/none: stat: no such file or directory",
		dir + "/m/b.yaml:7: Service default/a: is already defined at " + dir + "/m/a.yaml:2: this one is ignored",
	}
	if diff := cmp.Diff(wantErrs, texts(errs)); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Service default/z", "Service default/a", "Service default/b"}, refs(o)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	b := model.NewBuilder(model.Config{})
	o.ApplyTo(b)
	if diff := cmp.Diff([]string{"a=172.30.0.1", "b=172.30.0.2", "z=172.30.0.4"}, services(b.Snapshot())); diff != "" {
		t.Errorf("services (-want +got):\n%s", diff)
	}
}

func TestLoadReadsTheStandardInput(t *testing.T) {
	tr := newTree([]string{"-"})
	tr.stdin = strings.NewReader(service("a", 1) + "---\n- x\n")
	errs := tr.refresh()
	if diff := cmp.Diff([]string{"stdin:7: cannot use a list as an API object"}, texts(errs)); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
	for range 2 { // it stays, though it can't be read again
		o, _ := merge(tr.inEffect())
		if diff := cmp.Diff([]string{"Service default/a"}, refs(o)); diff != "" {
			t.Errorf("objects (-want +got):\n%s", diff)
		}
		tr.refresh()
	}
}

func TestUnreadableFile(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("needs a user that permissions apply to")
	}
	dir := t.TempDir()
	write(t, dir+"/a.yaml", service("a", 1))
	must(t, os.Chmod(dir+"/a.yaml", 0))
	_, errs := Load([]string{dir})
	if diff := cmp.Diff([]string{dir + "/a.yaml: open: permission denied"}, texts(errs)); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}
