package manifest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

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
	testaid.Equal(t, "errors", wantErrs, texts(errs))
	testaid.Equal(t, "objects", []string{"Service default/z", "Service default/a", "Service default/b"}, refs(o))
	b := model.NewBuilder(model.Config{})
	o.ApplyTo(b)
	testaid.Equal(t, "services", []string{"a=172.30.0.1", "b=172.30.0.2", "z=172.30.0.4"}, services(b.Snapshot()))
}

func TestLoadReadsTheStandardInput(t *testing.T) {
	before := os.Stdin
	t.Cleanup(func() { os.Stdin = before })
	path := filepath.Join(t.TempDir(), "in")
	write(t, path, service("a", 1)+"---\n- x\n")
	var err error
	os.Stdin, err = os.Open(path)
	must(t, err)
	defer os.Stdin.Close()
	files := read(look([]string{"-"}), nil)
	for range 2 { // it stays, though it can't be read again
		o := merge(files)
		testaid.Equal(t, "errors", []string{"stdin:7: every object needs an apiVersion and a kind"}, texts(o.errs))
		testaid.Equal(t, "objects", []string{"Service default/a"}, refs(o))
		files = read(look([]string{"-"}), files)
	}
}
