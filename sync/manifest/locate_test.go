package manifest

import (
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

func TestLocate(t *testing.T) {
	o, errs := Parse("in.yaml", []byte(testaid.Read(t, "testdata/locate.yaml")))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	web := model.ObjectRef{Kind: "Service", NamespacedName: model.NamespacedName{Namespace: "default", Name: "web"}}
	sticky := web
	sticky.Name = "sticky"
	node := func(name string) model.ObjectRef {
		return model.ObjectRef{Kind: "Node", NamespacedName: model.NamespacedName{Name: name}}
	}
	for _, tt := range []struct {
		ref   model.ObjectRef
		field string
		want  string
	}{
		{web, "", "in.yaml:1"},
		{web, "spec.ports[0].port", "in.yaml:1"},
		{node("a"), "metadata.name", "in.yaml:16 items[0]"},
		{node("b"), "", "in.yaml:16 items[1] items[0]"},
		{node("b"), "status.addresses[1].address", "in.yaml:16 items[1] items[0]"},
		{node("c"), "spec.podCIDRs[0]", "in.yaml:26"},
		{sticky, "spec.loadBalancerSourceRanges[0]", "in.yaml:30"},
		{node("none"), "", ""},
	} {
		p := model.Problem{Object: tt.ref, Field: tt.field, Message: "bad"}
		want := p.Error()
		if tt.want != "" {
			want = tt.want + ": " + want
		}
		if got := o.Located(p); got != want {
			t.Errorf("%v %q: want %q, got %q", tt.ref, tt.field, want, got)
		}
	}
}
