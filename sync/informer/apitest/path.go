package apitest

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kinds are those that the server has.
var kinds = map[Resource]schema.GroupVersionKind{
	Services:       corev1.SchemeGroupVersion.WithKind("Service"),
	Nodes:          corev1.SchemeGroupVersion.WithKind("Node"),
	Pods:           corev1.SchemeGroupVersion.WithKind("Pod"),
	EndpointSlices: discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"),
	ServiceCIDRs:   networkingv1.SchemeGroupVersion.WithKind("ServiceCIDR"),
	events:         eventsv1.SchemeGroupVersion.WithKind("Event"),
}

// target is what a path is about.
type target struct {
	schema.GroupVersion
	resource  Resource // empty if the path is not about objects
	namespace string
	name      string // of one object, or empty
}

// parsePath understands /api/v1[/namespaces/NS]/RESOURCE[/NAME] and
// /apis/GROUP/VERSION….
func parsePath(path string) target {
	var t target
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		t.Version, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		t.Group, t.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return t
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		t.namespace, parts = parts[1], parts[2:]
	}
	t.resource = Resource(parts[0])
	if len(parts) > 2 {
		return target{} // a subresource
	}
	if len(parts) > 1 {
		t.name = parts[1]
	}
	return t
}

// kind returns the kind of the path's objects, and whether the server has it.
func (t target) kind() (schema.GroupVersionKind, bool) {
	k := kinds[t.resource]
	return k, k.Kind != "" && k.GroupVersion() == t.GroupVersion
}
