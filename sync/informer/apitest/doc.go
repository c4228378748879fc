// Package apitest is an API server for tests: enough of one that client-go can list
// and watch Services, EndpointSlices, Nodes and ServiceCIDRs over real HTTP.
//
// client-go's own fake clientset answers from memory, and so knows nothing of what
// goes wrong in between: watches that end, resource versions that expire, servers
// that are away or answer one kind and not the other. This one does, on demand.
//
// It speaks JSON only, keeps no object over its own end, and checks nothing about
// the objects it is given.
package apitest
