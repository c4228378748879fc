// Package health tells load balancers, the kubelet and people whether this node's proxy
// does its work.
//
//	reconcile.Loop ──> Tracker ──> /healthz /livez /readyz, Status
//	      │               │ Healthy
//	      └──> Services ──┴──> one HTTP listener per Service with a healthCheckNodePort
//
// A [Tracker] and a [Services] are observers of the loop. Both only take notes when the
// loop calls: neither a slow client nor a port that is taken can hold it up.
//
// Who asks what:
//
//	/healthz   load balancers of Services with externalTrafficPolicy Cluster: may new
//	           connections be sent to this node? Not if the proxy is unhealthy, and not
//	           if the node is about to go (KEP-3836)
//	/livez     the kubelet: is the proxy healthy?
//	/readyz    whoever starts pods on a new node: is everything programmed?
//	a Service's healthCheckNodePort
//	           load balancers of Services with externalTrafficPolicy Local: has this
//	           node endpoints of the Service that are ready, and a healthy proxy?
package health
