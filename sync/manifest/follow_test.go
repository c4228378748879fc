package manifest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
)

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
	files := newTree([]string{dir}, false)
	objects := new(Objects)
	step := func(want ...string) {
		t.Helper()
		_, _ = files.refresh()
		_, _ = files.refresh() // a file that has changed is read when it rests
		next, _ := merge(files.files)
		var got []string
		set, gone := differences(objects, next)
		for _, o := range set {
			got = append(got, "set "+o.ref.String())
		}
		for _, o := range gone {
			got = append(got, "delete "+o.ref.String())
		}
		objects = next
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("edits (-want +got):\n%s", diff)
		}
	}
	all := func(verb, name string) []string {
		return []string{verb + " EndpointSlice default/" + name, verb + " Node " + name, verb + " Service default/" + name, verb + " ServiceCIDR " + name}
	}
	step()
	write(t, dir+"/a.yaml", object4("a"))
	step(all("set", "a")...)
	step()
	write(t, dir+"/b.yaml", object4("b"))
	step(all("set", "b")...)
	write(t, dir+"/b.yaml", "# comment\n"+service("c", 1)+object4("b"))
	step("set Service default/c")
	// Moved to another file: nothing changes.
	write(t, dir+"/b.yaml", object4("b"))
	write(t, dir+"/c.yaml", service("c", 1))
	step()
	write(t, dir+"/c.yaml", service("c", 2))
	step("set Service default/c")
	must(t, os.Remove(dir+"/a.yaml"))
	step(all("delete", "a")...)
	// What wasn't read again is the same value still, and costs a comparison of
	// pointers.
	before := objects.byRef[objects.list[0].ref]
	write(t, dir+"/c.yaml", service("c", 3))
	step("set Service default/c")
	if objects.byRef[before.ref] != before {
		t.Error("an unchanged file was parsed again")
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/m/b.yaml", service("b", 2)+service("a", 3))
	write(t, dir+"/m/a.yaml", service("a", 1))
	write(t, dir+"/m/x/c.json", "{")
	write(t, dir+"/m/empty.yaml", "")
	write(t, dir+"/z.txt", "apiVersion: v1\nkind: ConfigMap\n---\n"+service("z", 4))
	o, errs, err := Load([]string{dir + "/z.txt", dir + "/m", dir + "/m/a.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	wantErrs := []string{
		dir + "/m/x/c.json:1: yaml: line 1: did not find expected node content",
		dir + "/m/b.yaml:7: Service default/a: is already defined at " + dir + "/m/a.yaml:1: this one is ignored",
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
	tr := newTree([]string{"-"}, false)
	tr.stdin = strings.NewReader(service("a", 1) + "---\n- x\n")
	errs, _ := tr.refresh()
	if diff := cmp.Diff([]string{"stdin:7: every object needs an apiVersion and a kind"}, texts(errs)); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
	for range 2 { // it stays, though it can't be read again
		o, _ := merge(tr.files)
		if diff := cmp.Diff([]string{"Service default/a"}, refs(o)); diff != "" {
			t.Errorf("objects (-want +got):\n%s", diff)
		}
		_, _ = tr.refresh()
	}
}

func TestUnreadableFile(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("needs a user that permissions apply to")
	}
	dir := t.TempDir()
	write(t, dir+"/a.yaml", service("a", 1))
	must(t, os.Chmod(dir+"/a.yaml", 0))
	_, errs, _ := Load([]string{dir})
	if diff := cmp.Diff([]string{"cannot read " + dir + "/a.yaml: permission denied"}, texts(errs)); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}
