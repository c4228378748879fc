package model

// HealthCheck is the node's answer to a load balancer's health check of one Service
// (spec.healthCheckNodePort, for type LoadBalancer with externalTrafficPolicy Local). It
// never changes; a later snapshot in which it is equal holds the same pointer.
type HealthCheck struct {
	Service  NamespacedName
	Port     uint16                             // TCP
	Families [len(Families)]HealthCheckOfFamily // a load balancer asks about the family in which it asks
}

// HealthCheckOfFamily is the answer in one IP family.
type HealthCheckOfFamily struct {
	Has bool // the Service is in the family; otherwise nothing answers
	// LocalEndpoints is the number of addresses of ready endpoints on this node, over all
	// ports of the Service. It excludes terminating endpoints, which may still serve, so that
	// load balancers turn away in time.
	LocalEndpoints int
}
