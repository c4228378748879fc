// Package cluster makes the API objects of clusters that exist nowhere: any number of Services and EndpointSlices, as
// large as real ones, and what rolling updates do to them. All Services have a cluster IP of IPv4 and one TCP port.
//
// The same [Shape] gives the same objects and the same changes. Resource versions are for the API server to give.
package cluster
