package informer

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/vmapd/vmapd/model"
)

func TestWhatClientGoAsksOfAnObject(t *testing.T) {
	o := &object{Object: nothing, name: model.NamespacedName{Namespace: "ns1", Name: "a"}, version: "7"}
	want := metav1.ObjectMeta{Namespace: "ns1", Name: "a", ResourceVersion: "7"}
	for range 2 {
		m, err := meta.Accessor(o)
		if err != nil {
			t.Fatal(err)
		}
		// This asks for everything.
		if diff := cmp.Diff(want, meta.AsPartialObjectMetadata(m).ObjectMeta); diff != "" {
			t.Errorf("metadata (-want +got):\n%s", diff)
		}
		if key, err := cache.MetaNamespaceKeyFunc(o); key != "ns1/a" || err != nil {
			t.Errorf("key %q, %v", key, err)
		}
		o.endsList = true
		want.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
}

func TestSumsTellWhatDiffers(t *testing.T) {
	s := newSummer()
	base := func() *corev1.Service {
		out := versioned(service("a", "172.30.0.1"), "1")
		out.Labels = map[string]string{"a": "1", "b": "2", "c": ""}
		out.Annotations = map[string]string{"a": "1"}
		return out
	}
	one, sum := base(), s.sum(base())
	if got := s.sum(one); got != sum {
		t.Error("the same has another sum")
	}
	if diff := cmp.Diff(base(), one); diff != "" {
		t.Errorf("changed by its sum (-before +after):\n%s", diff)
	}
	seen := map[uint64]string{sum: "the original"}
	for name, change := range map[string]func(*corev1.Service){
		"version":             func(o *corev1.Service) { o.ResourceVersion = "2" },
		"content":             func(o *corev1.Service) { o.Spec.Ports[0].Port = 81 },
		"a label":             func(o *corev1.Service) { o.Labels["a"] = "2" },
		"a label more":        func(o *corev1.Service) { o.Labels["d"] = "" },
		"no labels":           func(o *corev1.Service) { o.Labels = nil },
		"values change place": func(o *corev1.Service) { o.Labels["a"], o.Labels["b"] = "2", "1" },
		"a key and its value": func(o *corev1.Service) { o.Labels = map[string]string{"a": "1", "b2": "", "c": ""} },
		"an annotation":       func(o *corev1.Service) { o.Annotations["a"] = "2" },
		"labels and annotations change place": func(o *corev1.Service) {
			o.Labels, o.Annotations = o.Annotations, o.Labels
		},
	} {
		o := base()
		change(o)
		got := s.sum(o)
		if other, ok := seen[got]; ok {
			t.Errorf("%s: the sum is that of %s", name, other)
		}
		seen[got] = name
	}
}
