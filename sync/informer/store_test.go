package informer

// Addresses: pods 10.0.0.0/8, cluster IPs 172.30.0.0/16, nodes 192.168.0.0/24 (ours .2).

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/kube/client"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// newServices returns a store of Services, and what tells which Services the state has and
// how many changes it was told of.
func newServices(t *testing.T) (*store, func() ([]string, int)) {
	t.Helper()
	state := reconcile.NewState(model.NewBuilder(model.Config{NodeName: "node1"}), 1)
	unused, err := client.New(&rest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := newStore(resources(unused, "node1")[0], state, state.Complete)
	return s, func() ([]string, int) {
		n, _ := state.Pending()
		var out []string
		state.Update(reconcile.Change{}, func(b *model.Builder) { out = view(b.Snapshot()) })
		return out, n
	}
}

func versioned(s *corev1.Service, version string) *corev1.Service {
	s.ResourceVersion = version
	return s
}

// replace gives the store a list that was read in one piece.
func replace(t *testing.T, s *store, list ...corev1.Service) {
	t.Helper()
	read, err := s.listed(&corev1.ServiceList{Items: list})
	if err != nil {
		t.Fatal(err)
	}
	var items []any
	for _, o := range read.Items {
		items = append(items, o)
	}
	if err := s.Replace(items, ""); err != nil {
		t.Fatal(err)
	}
}

func TestStoreTellsOnlyOfChanges(t *testing.T) {
	s, told := newServices(t)
	event := func(do func(any) error, svc *corev1.Service) func() {
		return func() {
			if err := do(s.later(watch.Event{Object: svc}).Object); err != nil {
				t.Fatal(err)
			}
		}
	}
	a, b := versioned(service("a", "172.30.0.1"), "1"), versioned(service("b", "172.30.0.2"), "2")
	const lineA, lineB = "ns1/a:http at 172.30.0.1:80/tcp:", "ns1/b:http at 172.30.0.2:80/tcp:"
	for _, step := range []struct {
		name string
		do   func()
		told int
		want []string
	}{
		{"first list", func() { replace(t, s, *a, *b) }, 2, []string{lineA, lineB}},
		{"the same list", func() { replace(t, s, *a, *b) }, 0, []string{lineA, lineB}},
		{"an event that repeats", event(s.Update, a.DeepCopy()), 0, []string{lineA, lineB}},
		{"a version that comes twice", event(s.Update, versioned(service("a", "172.30.0.3"), "1")), 1, []string{"ns1/a:http at 172.30.0.3:80/tcp:", lineB}},
		{"another version of the same", event(s.Update, versioned(service("a", "172.30.0.3"), "4")), 1, []string{"ns1/a:http at 172.30.0.3:80/tcp:", lineB}},
		{"a list that lacks one", func() { replace(t, s, *a) }, 2, []string{lineA}},
		{"deletion", event(s.Delete, a), 1, nil},
		{"deletion of what is unknown", event(s.Delete, a), 0, nil},
		{"what was deleted comes back", event(s.Add, a), 1, []string{lineA}},
		{"nothing is left", func() { replace(t, s) }, 1, nil},
	} {
		_, before := told()
		step.do()
		got, after := told()
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
		if after-before != step.told {
			t.Errorf("%s: %d changes, want %d", step.name, after-before, step.told)
		}
	}
}

// A stream of everything, after an outage, is collected by client-go until it has ended.
func TestStoreHoldsNoContentTwice(t *testing.T) {
	s, told := newServices(t)
	a, b := versioned(service("a", "172.30.0.1"), "1"), versioned(service("b", "172.30.0.2"), "2")
	read := func(svc *corev1.Service) *object {
		return s.initial(watch.Event{Type: watch.Added, Object: svc}).Object.(*object)
	}
	first := read(a)
	if names, _ := told(); len(names) != 1 || first.set != nil {
		t.Errorf("at the start, the state has %q and content is held: %v", names, first.set != nil)
	}
	bookmark := &corev1.Service{}
	bookmark.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	s.initial(watch.Event{Type: watch.Bookmark, Object: bookmark})
	read(b) // is deleted before the list comes to its end
	if err := s.Replace([]any{first}, "1"); err != nil {
		t.Fatal(err)
	}
	if names, n := told(); len(names) != 1 || n != 3 {
		t.Errorf("after the first list the state has %q, by %d changes", names, n)
	}
	if read(a).set != nil {
		t.Error("content is held of an object that the state has")
	}
	if read(versioned(service("a", "172.30.0.1"), "2")).set == nil {
		t.Error("another version is without content")
	}
}

func TestStoreLeavesOtherKindsToOthers(t *testing.T) {
	s, _ := newServices(t)
	var other runtime.Object = node("node1", "192.168.0.2")
	if got := s.initial(watch.Event{Object: other}).Object; got != other {
		t.Errorf("became %v", got)
	}
	if _, err := s.listed(&corev1.NodeList{Items: []corev1.Node{*node("node1", "192.168.0.2")}}); err == nil {
		t.Error("no error for a list of them")
	}
}
