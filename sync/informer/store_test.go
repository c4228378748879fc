package informer

// Addresses: pods 10.0.0.0/8, cluster IPs 172.30.0.0/16, nodes 192.168.0.0/24 (ours .2).

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/kube/client"
	"github.com/vmapd/vmapd/sync/kube/slim"
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

// kept is what the informer keeps of a Service.
func kept(t *testing.T, s *store, svc *corev1.Service) *object {
	t.Helper()
	o, err := s.transform(slim.From(svc))
	if err != nil {
		t.Fatal(err)
	}
	return o.(*object)
}

// give gives the store an event as client-go does.
func give(t *testing.T, s *store, kind cache.DeltaType, what any) {
	t.Helper()
	if err := s.process(cache.Deltas{{Type: kind, Object: what}}, false); err != nil {
		t.Fatal(err)
	}
}

// replace gives the store a list that was read in one piece.
func replace(t *testing.T, s *store, list ...corev1.Service) {
	t.Helper()
	s.complete()
	var all cache.ReplacedAllInfo
	for i := range list {
		all.Objects = append(all.Objects, kept(t, s, &list[i]))
	}
	give(t, s, cache.ReplacedAll, all)
}

func TestStoreTellsOnlyOfChanges(t *testing.T) {
	s, told := newServices(t)
	event := func(kind cache.DeltaType, svc *corev1.Service) func() {
		return func() { give(t, s, kind, kept(t, s, svc)) }
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
		{"an event that repeats", event(cache.Updated, a.DeepCopy()), 0, []string{lineA, lineB}},
		{"another version", event(cache.Updated, versioned(service("a", "172.30.0.3"), "4")), 1, []string{"ns1/a:http at 172.30.0.3:80/tcp:", lineB}},
		{"a version that comes twice, after a restore", func() {
			s.forget()
			replace(t, s, *versioned(service("a", "172.30.0.4"), "4"), *b)
		}, 2, []string{"ns1/a:http at 172.30.0.4:80/tcp:", lineB}},
		{"a list that lacks one", func() { replace(t, s, *a) }, 2, []string{lineA}},
		{"deletion", event(cache.Deleted, a), 1, nil},
		{"deletion of what is unknown", event(cache.Deleted, a), 0, nil},
		{"what was deleted comes back", event(cache.Added, a), 1, []string{lineA}},
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
	first := kept(t, s, a)
	if names, _ := told(); len(names) != 1 || first.set != nil {
		t.Errorf("at the start, the state has %q and content is held: %v", names, first.set != nil)
	}
	if again, err := s.transform(first); again != any(first) || err != nil {
		t.Errorf("transformed again to %v, %v", again, err)
	}
	kept(t, s, b) // is deleted before the list comes to its end
	s.complete()
	give(t, s, cache.ReplacedAll, cache.ReplacedAllInfo{Objects: []any{first}})
	if names, n := told(); len(names) != 1 || n != 3 {
		t.Errorf("after the first list the state has %q, by %d changes", names, n)
	}
	if kept(t, s, a).set != nil {
		t.Error("content is held of an object that the state has")
	}
	if kept(t, s, versioned(service("a", "172.30.0.1"), "2")).set == nil {
		t.Error("another version is without content")
	}
}

// An event may come before the list that precedes it is in the state.
func TestAnEventOvertakesTheFirstList(t *testing.T) {
	s, told := newServices(t)
	first := kept(t, s, versioned(service("a", "172.30.0.1"), "1"))
	s.complete()
	next := kept(t, s, versioned(service("b", "172.30.0.2"), "2"))
	give(t, s, cache.ReplacedAll, cache.ReplacedAllInfo{Objects: []any{first}})
	give(t, s, cache.Added, next)
	if names, _ := told(); len(names) != 2 {
		t.Errorf("the state has %q", names)
	}
}

func TestOtherKindsAreErrors(t *testing.T) {
	s, _ := newServices(t)
	for _, other := range []any{node("node1", "192.168.0.2"), 1} {
		if got, err := s.transform(other); err == nil {
			t.Errorf("no error, but %v", got)
		}
	}
}
