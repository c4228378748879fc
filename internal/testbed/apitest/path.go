package apitest

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// target is what a path is about.
type target struct {
	group, version string
	resource       Resource // empty if the path is not about objects
	subresource    string
	namespace      string
	name           string // of one object, or empty
}

// parsePath understands /api/v1[/namespaces/NS]/RESOURCE[/NAME[/SUBRESOURCE]] and
// /apis/GROUP/VERSION….
func parsePath(path string) target {
	var t target
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		t.version, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		t.group, t.version, parts = parts[1], parts[2], parts[3:]
	default:
		return t
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		t.namespace, parts = parts[1], parts[2:]
	}
	t.resource = Resource(parts[0])
	if len(parts) > 1 {
		t.name = parts[1]
	}
	if len(parts) > 2 {
		t.subresource = strings.Join(parts[2:], "/")
	}
	return t
}

// kinds makes empty objects and lists.
type kinds struct {
	object, list func() runtime.Object
}

// kinds returns nil functions for what the server does not have.
func (t target) kinds() kinds {
	switch t.group + "/" + t.version + "/" + string(t.resource) {
	case "/v1/services":
		return kinds{
			func() runtime.Object { return new(corev1.Service) },
			func() runtime.Object { return new(corev1.ServiceList) },
		}
	case "/v1/nodes":
		return kinds{
			func() runtime.Object { return new(corev1.Node) },
			func() runtime.Object { return new(corev1.NodeList) },
		}
	case "/v1/pods":
		return kinds{
			func() runtime.Object { return new(corev1.Pod) },
			func() runtime.Object { return new(corev1.PodList) },
		}
	case "apps/v1/deployments":
		return kinds{
			func() runtime.Object { return new(appsv1.Deployment) },
			func() runtime.Object { return new(appsv1.DeploymentList) },
		}
	case "discovery.k8s.io/v1/endpointslices":
		return kinds{
			func() runtime.Object { return new(discoveryv1.EndpointSlice) },
			func() runtime.Object { return new(discoveryv1.EndpointSliceList) },
		}
	case "networking.k8s.io/v1/servicecidrs":
		return kinds{
			func() runtime.Object { return new(networkingv1.ServiceCIDR) },
			func() runtime.Object { return new(networkingv1.ServiceCIDRList) },
		}
	}
	return kinds{}
}
