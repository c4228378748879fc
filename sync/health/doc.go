// Package health answers health checks of this node's proxy, by load balancers, the kubelet and administrators.
//
//	reconcile.Loop ──> Tracker ──> /healthz /livez /readyz, Status
//	      │               │ Healthy
//	      └──> Services ──┴──> one HTTP listener per Service with a healthCheckNodePort
//
// A [Tracker] and a [Services] are observers of the loop. Both only store its results when
// it calls: neither a slow client nor a port in use can delay a round.
//
// Each path has its clients and its question:
//
//	/healthz   load balancers of Services with externalTrafficPolicy Cluster: may new
//	           connections be sent to this node? Not if the proxy is unhealthy, and not
//	           if the node is being deleted (KEP-3836)
//	/livez     the kubelet: is the proxy healthy?
//	/readyz    the DaemonSet's rollout: is everything programmed?
//	a Service's healthCheckNodePort
//	           load balancers of Services with externalTrafficPolicy Local: does this
//	           node have ready endpoints of the Service, and a healthy proxy? Each IP
//	           family for itself
package health
