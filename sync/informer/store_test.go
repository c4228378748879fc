package informer

// Addresses: pods 10.0.0.0/8, cluster IPs 172.30.0.0/16, nodes 192.168.0.0/24 (ours .2).

import (
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/kube/client"
	"github.com/vmapd/vmapd/sync/reconcile"
)

func versioned(name, ip, version string) *corev1.Service {
	s := service(name, ip)
	s.ResourceVersion = version
	return s
}

// The state gets what is new, once, be it by an event, a plain list or a streamed one.
func TestOnlyChangesAreWritten(t *testing.T) {
	state := reconcile.NewState(model.NewBuilder(model.Config{NodeName: "node1"}), 1)
	f := newFollower(resources(new(client.Client), "node1")[3], &Source{Log: slog.New(slog.DiscardHandler)}, state, state.Complete)
	list := func(objects ...*corev1.Service) error {
		var all []any
		for _, o := range objects {
			all = append(all, o)
		}
		return f.Replace(all, "")
	}
	streamed := func(objects ...*corev1.Service) (names []any) {
		for _, o := range objects {
			name, err := f.Transformer()(o)
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, name)
		}
		return names
	}
	a, b := versioned("a", "172.30.0.1", "1"), versioned("b", "172.30.0.2", "2")
	const lineA, lineB = "ns1/a:http at 172.30.0.1:80/tcp:", "ns1/b:http at 172.30.0.2:80/tcp:"
	for _, step := range []struct {
		name  string
		do    func() error
		wrote int
		want  []string
	}{
		{"half a streamed list", func() error { streamed(a); return nil }, 1, []string{lineA}},
		{"a streamed list", func() error { return f.Replace(streamed(a, b), "") }, 1, []string{lineA, lineB}},
		{"the same list", func() error { return list(a, b) }, 0, []string{lineA, lineB}},
		{"an event that repeats", func() error { return f.Update(a) }, 0, []string{lineA, lineB}},
		{"another version", func() error { return f.Update(versioned("a", "172.30.0.3", "4")) }, 1, []string{"ns1/a:http at 172.30.0.3:80/tcp:", lineB}},
		{"half a list of less", func() error { streamed(b); return nil }, 0, []string{"ns1/a:http at 172.30.0.3:80/tcp:", lineB}},
		{"a list that lacks one", func() error { return list(a) }, 2, []string{lineA}},
		{"deletion", func() error { return f.Delete(a) }, 1, nil},
		{"deletion of what is unknown", func() error { return f.Delete(a) }, 0, nil},
		{"what was deleted comes back", func() error { return f.Add(a) }, 1, []string{lineA}},
		{"no version", func() error { return f.Update(versioned("a", "172.30.0.1", "")) }, 1, []string{lineA}},
		{"nothing is left", func() error { return f.Replace(nil, "") }, 1, nil},
	} {
		before, _ := state.Pending()
		if err := step.do(); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		after, _ := state.Pending()
		var got []string
		state.Update(reconcile.Change{}, func(b *model.Builder) { got = view(b.Snapshot()) })
		if diff := cmp.Diff(step.want, got); diff != "" || after-before != step.wrote {
			t.Errorf("%s: %d changes, want %d (-want +got):\n%s", step.name, after-before, step.wrote, diff)
		}
	}
}
