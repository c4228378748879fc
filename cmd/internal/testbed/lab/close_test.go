package lab

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/model/nettest"
)

func TestCloseLeavesNothing(t *testing.T) {
	nettest.Need(t)
	before := held(t)
	w, err := New(t.Context(), Config{Pods: 3, Ports: []uint16{port, 81}})
	if err != nil {
		t.Fatal(err)
	}
	p := w.Pods()[0]
	conn, err := w.Client.Dial(t.Context(), "tcp", netip.AddrPortFrom(p.IP4, port))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Ask(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A second door to the node: through it the other namespaces can be seen
	// to go, because a link goes with the namespace at its other end.
	var node *Namespace
	err = w.Node.Do(func() (err error) { node, err = OpenNamespace("door", "/proc/thread-self/ns/net"); return err })
	if err != nil {
		t.Fatal(err)
	}
	if got, want := links(t, node), 5; got != want { // lo, eth0, three pods
		t.Errorf("the node's links: want %d, got %d", want, got)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	conn.Close()
	testaid.WaitUntil(t, "client and pods are gone", func() bool { return links(t, node) == 1 })
	if err := node.Close(); err != nil {
		t.Error(err)
	}
	if _, err := w.AddPod(t.Context(), "late"); !errors.Is(err, ErrClosed) {
		t.Errorf("want %v, got %v", ErrClosed, err)
	}
	testaid.WaitUntil(t, "resources given back", func() bool { return !held(t).exceed(before) })
}

// resources are what a world takes of the process.
type resources struct {
	goroutines, descriptors int
	elsewhere               int // threads in another network namespace
}

// exceed reports whether there are more than before. There may be less: what
// an earlier test gave back can take its time.
func (r resources) exceed(before resources) bool {
	return r.goroutines > before.goroutines || r.descriptors > before.descriptors || r.elsewhere > before.elsewhere
}

// held counts the resources of this process.
func held(t *testing.T) resources {
	t.Helper()
	home, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	r := resources{goroutines: runtime.NumGoroutine()}
	descriptors, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	r.descriptors = len(descriptors)
	threads, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		if ns, err := os.Readlink(thread); err == nil && ns != home {
			r.elsewhere++
		}
	}
	return r
}

// links counts the links of a namespace.
func links(t *testing.T, ns *Namespace) int {
	t.Helper()
	var all []netlink.Link
	if err := ns.Do(func() (err error) { all, err = netlink.LinkList(); return err }); err != nil {
		t.Fatal(err)
	}
	return len(all)
}
