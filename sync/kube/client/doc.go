// Package client makes the requests to an API server that a Service proxy makes, and no
// others:
//
//	list, watch   services, endpointslices, nodes, servicecidrs
//	get           nodes
//	create, patch events (events.k8s.io)
//	create        tokenreviews, subjectaccessreviews
//
// client-go's clientset makes them alike. But it knows all groups of the API, and with
// them come hundreds of packages whose initialization alone takes more memory than the
// proxy needs for a small cluster.
package client
