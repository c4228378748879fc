package apitest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
)

func clientset(t *testing.T, s *Server, contentType string) *kubernetes.Clientset {
	t.Helper()
	conf := s.Config()
	conf.ContentType = contentType
	c, err := kubernetes.NewForConfig(conf)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRules(t *testing.T) {
	s := start(t, Options{Secure: true, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"list", "watch"}, APIGroups: []string{""}, Resources: []string{"services"}},
		{Verbs: []string{"get", "list"}, APIGroups: []string{""}, Resources: []string{"nodes"}, ResourceNames: []string{"node1"}},
		{Verbs: []string{"create"}, APIGroups: []string{"events.k8s.io"}, Resources: []string{"*"}},
	}})
	s.Set(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}})
	c := clientset(t, s, runtime.ContentTypeProtobuf)
	ctx := t.Context()
	errOf := func(_ any, err error) error { return err }
	one := func(name string) metav1.ListOptions {
		return metav1.ListOptions{FieldSelector: "metadata.name=" + name}
	}
	for _, tt := range []struct {
		name string
		err  error
		ok   bool
	}{
		{"list services", errOf(c.CoreV1().Services("").List(ctx, metav1.ListOptions{})), true},
		{"get a service", errOf(c.CoreV1().Services("ns1").Get(ctx, "a", metav1.GetOptions{})), false},
		{"list node1", errOf(c.CoreV1().Nodes().List(ctx, one("node1"))), true},
		{"get node2", errOf(c.CoreV1().Nodes().Get(ctx, "node2", metav1.GetOptions{})), false},
		{"list node2", errOf(c.CoreV1().Nodes().List(ctx, one("node2"))), false},
		{"list all nodes", errOf(c.CoreV1().Nodes().List(ctx, metav1.ListOptions{})), false},
		{"watch node1", errOf(c.CoreV1().Nodes().Watch(ctx, one("node1"))), false},
		{"list slices", errOf(c.DiscoveryV1().EndpointSlices("").List(ctx, metav1.ListOptions{})), false},
		{"create an event", errOf(c.EventsV1().Events("ns1").Create(ctx, &eventsv1.Event{}, metav1.CreateOptions{})), true},
		{"delete an event", c.EventsV1().Events("ns1").Delete(ctx, "a", metav1.DeleteOptions{}), false},
		{"ask for the version", errOf(c.Discovery().ServerVersion()), true},
	} {
		if tt.ok && tt.err != nil || !tt.ok && !apierrors.IsForbidden(tt.err) {
			t.Errorf("%s: allowed is %v, got %v", tt.name, tt.ok, tt.err)
		}
	}
	want := []Access{
		{"get", "", "services", "a"},
		{"get", "", "nodes", "node2"},
		{"list", "", "nodes", "node2"},
		{"list", "", "nodes", ""},
		{"watch", "", "nodes", "node1"},
		{"list", "discovery.k8s.io", "endpointslices", ""},
		{"delete", "events.k8s.io", "events", "a"},
	}
	if diff := cmp.Diff(want, s.Denied()); diff != "" {
		t.Errorf("denied (-want +got):\n%s", diff)
	}
}
