package client

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// newScheme returns the kinds in requests and responses. Each group also has the kinds of all
// groups: options, Status, WatchEvent.
func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for group, kinds := range map[schema.GroupVersion][]runtime.Object{
		corev1.SchemeGroupVersion: {
			&corev1.Service{}, &corev1.ServiceList{}, &corev1.Node{}, &corev1.NodeList{}, &corev1.Pod{}, &corev1.PodList{},
		},
		discoveryv1.SchemeGroupVersion:  {&discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{}},
		networkingv1.SchemeGroupVersion: {&networkingv1.ServiceCIDR{}, &networkingv1.ServiceCIDRList{}},
		eventsv1.SchemeGroupVersion:     {&eventsv1.Event{}},
	} {
		s.AddKnownTypes(group, kinds...)
		metav1.AddToGroupVersion(s, group)
	}
	return s
}
