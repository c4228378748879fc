// Package client makes the requests to an API server that a Service proxy needs, and no others:
//
//	list, watch   services, endpointslices, nodes, servicecidrs
//	create, patch events (events.k8s.io)
//	list          pods, deployments, statefulsets, daemonsets, replicasets
//
// The last line is for people who explain connections with credentials of their own; the daemon sends no such request.
//
// client-go's clientset would do, but it knows all groups of the API: the initialization of
// their packages takes more memory than the proxy needs for a small cluster. A client of
// client-go's gentype for these kinds alone links 397 packages, and this one 324.
package client
