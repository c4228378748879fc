package manifest

import (
	"testing"

	"github.com/vmapd/vmapd/model"
)

func TestLocate(t *testing.T) {
	o, errs := Parse("in.yaml", []byte(`# first line
apiVersion: v1
kind: Service
metadata:
  name: web
  labels:
    a/b.c: d
spec:
  clusterIP: 172.30.0.41
  ports:
  - name: http
    port: 0
  - {name: dns,
     port: 53}
---
{"apiVersion": "v1", "kind": "List", "items": [
  {"apiVersion": "v1", "kind": "Node", "metadata": {
    "name": "a"}},
  {"apiVersion": "v1", "kind": "NodeList", "items": [
    {"metadata": {"name": "b"},
      "status": {"addresses": [
        {"address": "1"},
        {"address": "2"}]}}]}
]}
---
{"apiVersion": "v1", "kind": "Node", "metadata": {
  "name": "c"},
  "spec": {"podCIDR": "nowhere"}}
---
{"apiVersion": "v1", "kind": "Service", "metadata": {
  "name": "sticky", "annotations": {
    "vmapd.io/lb-algorithm": "none"}},
  "spec": {
    "loadBalancerSourceRanges": [
      "nowhere"],
    "sessionAffinityConfig": {
      "clientIP": {
        "timeoutSeconds": 0}}}}
`))
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
		{node("a"), "metadata.name", "in.yaml:16"},
		{node("b"), "", "in.yaml:16"},
		{node("b"), "status.addresses[1].address", "in.yaml:16"},
		{node("c"), "spec.podCIDRs[0]", "in.yaml:26"},
		{sticky, "spec.loadBalancerSourceRanges[0]", "in.yaml:30"},
		{node("none"), "metadata.name", ""},
	} {
		if got := o.Locate(model.Problem{Object: tt.ref, Field: tt.field}); got != tt.want {
			t.Errorf("%v %q: want %q, got %q", tt.ref, tt.field, tt.want, got)
		}
	}
}
