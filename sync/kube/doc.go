// Package kube converts Kubernetes API objects to the inputs of package model.
//
//	*corev1.Service, *discoveryv1.EndpointSlice,      model.Service, model.EndpointSlice,
//	*corev1.Node, *networkingv1.ServiceCIDR      ──>  model.Node, model.ServiceCIDR
//
// It only copies. [github.com/vmapd/vmapd/model.Builder] decides which objects are used, and how they affect traffic.
// No other pure package knows Kubernetes, so that model, nft and legacy build without it.
package kube
