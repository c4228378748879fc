// Package kube turns Kubernetes API objects into the inputs of package model.
//
//	*corev1.Service, *discoveryv1.EndpointSlice,      model.Service, model.EndpointSlice,
//	*corev1.Node, *networkingv1.ServiceCIDR      ──>  model.Node, model.ServiceCIDR
//
// It copies and decides nothing: whether an object counts, and what it means for
// traffic, is for [github.com/vmapd/vmapd/model.Builder] to say. It is the only
// pure package that knows Kubernetes, so model, nft and legacy build without it.
package kube
