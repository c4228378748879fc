package manifest

// Addresses: pods 10.0.0.0/8, cluster IPs 172.30.0.0/16.

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/model/modeltest/testlog"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// service is the manifest of a Service with cluster IP 172.30.0.ip.
func service(name string, ip int) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {clusterIP: 172.30.0.%d, ports: [{port: 80}]}\n", name, ip)
}

// running is a source at work.
type running struct {
	t      *testing.T
	source *Source
	state  *reconcile.State
	logs   testlog.Log
}

func start(t *testing.T, paths ...string) *running {
	t.Helper()
	r := &running{t: t, state: reconcile.NewState(model.NewBuilder(model.Config{NodeName: "node1"}), 1)}
	source, err := Open(paths, slog.New(slog.NewTextHandler(&r.logs, nil)))
	must(t, err)
	r.source = source
	testaid.Run(t, func(ctx context.Context) { source.Run(ctx, r.state) })
	return r
}

// services are the cluster IPs by Service name, as "name=ip".
func services(s *model.Snapshot) []string {
	var out []string
	for sp := range s.Family(model.IPv4).ServicePorts() {
		for _, f := range sp.Frontends {
			out = append(out, fmt.Sprintf("%s=%v", sp.Name.Name, f.VIP.Addr))
		}
	}
	slices.Sort(out)
	return out
}

// want waits until the state has exactly these services.
func (r *running) want(want ...string) {
	r.t.Helper()
	testaid.WaitUntil(r.t, "services "+strings.Join(want, " "), func() bool {
		snap, ok := r.state.Snapshot()
		return ok && slices.Equal(services(snap), want)
	})
}

// log waits for a text in the log, behind the one before.
func (r *running) log(text string) {
	r.t.Helper()
	testaid.WaitUntil(r.t, "in the log: "+text, func() bool { return r.logs.Find(text) })
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	testaid.Write(t, path, text)
}

// must is for what a test does to files.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestSourceFollowsAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "any.txt")
	write(t, path, service("a", 1)+service("b", 2))
	r := start(t, path)
	r.want("a=172.30.0.1", "b=172.30.0.2")

	write(t, path, service("a", 1)+service("b", 3)+service("c", 4))
	r.want("a=172.30.0.1", "b=172.30.0.3", "c=172.30.0.4")

	// How editors and careful programs write.
	write(t, path+".tmp", service("c", 4))
	must(t, os.Rename(path+".tmp", path))
	r.want("c=172.30.0.4")

	must(t, os.Rename(path, path+"~"))
	write(t, path, service("d", 5))
	r.want("d=172.30.0.5")

	// The path was given: it vanishing is a mistake, not an instruction.
	must(t, os.Remove(path))
	r.log(`valid objects stay in effect" err="cannot read ` + path + ": no such file or directory")
	r.want("d=172.30.0.5")
	write(t, path, service("e", 6))
	r.want("e=172.30.0.6")
	r.log("are corrected")
}

func TestSourceFollowsAFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "manifests")
	write(t, dir+"/a.yaml", service("a", 1))
	write(t, dir+"/sub/b.yml", service("b", 2))
	write(t, dir+"/README.md", service("no", 99))
	write(t, dir+"/.hidden.yaml", service("no", 99))
	write(t, dir+"/.git/x.yaml", service("no", 99))
	r := start(t, dir)
	r.want("a=172.30.0.1", "b=172.30.0.2")

	write(t, dir+"/c.json", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"c"},"spec":{"clusterIP":"172.30.0.3","ports":[{"port":80}]}}`)
	r.want("a=172.30.0.1", "b=172.30.0.2", "c=172.30.0.3")

	// A folder that comes with files in it, and folders in those.
	other := filepath.Join(filepath.Dir(dir), "other")
	write(t, other+"/deep/d.yaml", service("d", 4))
	must(t, os.Rename(other, dir+"/new"))
	r.want("a=172.30.0.1", "b=172.30.0.2", "c=172.30.0.3", "d=172.30.0.4")
	write(t, dir+"/new/deep/e.yaml", service("e", 5))
	r.want("a=172.30.0.1", "b=172.30.0.2", "c=172.30.0.3", "d=172.30.0.4", "e=172.30.0.5")

	must(t, os.Remove(dir+"/a.yaml"))
	must(t, os.RemoveAll(dir+"/sub"))
	r.want("c=172.30.0.3", "d=172.30.0.4", "e=172.30.0.5")
	must(t, os.Rename(dir+"/new", other))
	r.want("c=172.30.0.3")

	must(t, os.Rename(dir, dir+".old"))
	r.log(`valid objects stay in effect" err="cannot read ` + dir + ": no such file or directory")
	r.want("c=172.30.0.3")
	write(t, dir+".next/f.yaml", service("f", 6))
	must(t, os.Rename(dir+".next", dir))
	r.want("f=172.30.0.6")
	write(t, dir+"/g.yaml", service("g", 7))
	r.want("f=172.30.0.6", "g=172.30.0.7")
}

// The kubelet writes a ConfigMap into a new folder and then moves one link.
func TestSourceFollowsAConfigMap(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"the folder", "one file"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir+"/..2026_1/web.yaml", service("a", 1))
			must(t, os.Symlink("..2026_1", dir+"/..data"))
			must(t, os.Symlink("..data/web.yaml", dir+"/web.yaml"))
			path := dir
			if name == "one file" {
				path += "/web.yaml"
			}
			r := start(t, path)
			r.want("a=172.30.0.1")
			for i := 2; i < 5; i++ {
				next := fmt.Sprintf("..2026_%d", i)
				write(t, filepath.Join(dir, next, "web.yaml"), service("a", i))
				must(t, os.Symlink(next, dir+"/..data_tmp"))
				must(t, os.Rename(dir+"/..data_tmp", dir+"/..data"))
				must(t, os.RemoveAll(fmt.Sprintf("%s/..2026_%d", dir, i-1)))
				r.want(fmt.Sprintf("a=172.30.0.%d", i))
			}
		})
	}
}

func TestSourceFollowsLinks(t *testing.T) {
	t.Parallel()
	dir, far := t.TempDir(), t.TempDir()
	write(t, far+"/file.yaml", service("a", 1))
	write(t, far+"/folder/b.yaml", service("b", 2))
	must(t, os.Symlink(far+"/file.yaml", dir+"/a.yaml"))
	must(t, os.Symlink(far+"/folder", dir+"/sub")) // as kubectl, vmapd follows no link to a folder
	must(t, os.Symlink("..", far+"/folder/loop"))
	must(t, os.Symlink("nowhere", dir+"/c.yaml"))
	r := start(t, dir)
	r.want("a=172.30.0.1")
	write(t, far+"/file.yaml", service("a", 3))
	r.want("a=172.30.0.3")
}

func TestSourceKeepsTheLastGoodContent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/a.yaml", service("a", 1)+service("b", 2))
	write(t, dir+"/c.yaml", service("c", 3))
	r := start(t, dir)
	r.want("a=172.30.0.1", "b=172.30.0.2", "c=172.30.0.3")
	r.log("manifests read")

	for _, bad := range []struct{ text, log, a string }{
		{service("a", 9) + "---\nnonsense: [", dir + "/a.yaml:7: yaml: line 7: did not find expected", "a=172.30.0.9"},
		{service("a", 8) + strings.Replace(service("b", 9), "80", "x", 1), dir + "/a.yaml:7: Service default/b: json: cannot unmarshal string into Go struct field ServicePort.spec.ports.port of type int32", "a=172.30.0.8"},
		{"", dir + "/a.yaml: is empty", "a=172.30.0.8"},
	} {
		write(t, dir+"/a.yaml", bad.text)
		r.log(`valid objects stay in effect" err="` + bad.log)
		r.want(bad.a, "b=172.30.0.2", "c=172.30.0.3")
		// Other files go on, and what was said is not said again.
		write(t, dir+"/c.yaml", service("c", 5))
		r.want(bad.a, "b=172.30.0.2", "c=172.30.0.5")
		write(t, dir+"/c.yaml", service("c", 3))
		r.want(bad.a, "b=172.30.0.2", "c=172.30.0.3")
		if n := r.logs.Count(bad.log); n != 1 {
			t.Errorf("%q is logged %d times, want once", bad.log, n)
		}
	}
	write(t, dir+"/a.yaml", service("a", 4))
	r.want("a=172.30.0.4", "c=172.30.0.3")
	r.log("all errors in manifests are corrected")
}

func TestSourceUsesWhatIsGoodAtTheStart(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", service("a", 1)+"---\nnonsense: [")
	write(t, dir+"/b.yaml", service("b", 2)+service("a", 9))
	r := start(t, dir)
	r.want("a=172.30.0.1", "b=172.30.0.2")
	r.log(`valid objects stay in effect" err="` + dir + "/a.yaml:7: yaml: line 7: did not find")
	r.log("Service default/a: is already defined at " + dir + "/a.yaml:1")

	// After the first of two is removed, the second takes effect.
	must(t, os.Remove(dir+"/a.yaml"))
	r.want("a=172.30.0.9", "b=172.30.0.2")
}

func TestSourceNeedsItsPaths(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", service("a", 1))
	for _, paths := range [][]string{{dir, dir + "/none.yaml"}, {dir + "/none/", dir}} {
		if _, err := Open(paths, slog.New(slog.DiscardHandler)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v: got error %v", paths, err)
		}
	}
}
