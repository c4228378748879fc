// Package apitest is an API server for tests: enough of one that client-go can list
// and watch Services, EndpointSlices, Nodes and ServiceCIDRs over real HTTP, write
// events, and ask who somebody is and what they may do.
//
// client-go's own fake clientset answers from memory, and so knows nothing of what
// goes wrong in between: watches that end, resource versions that expire, certificates
// that are replaced, servers that are away, that answer one kind and not the other, or
// in whose place a proxy answers. This one does, on demand.
//
// It speaks protobuf and JSON as real ones do, and with [Options.TLS] HTTP/2. It keeps
// no object over its own end, and checks nothing about the objects it is given.
package apitest
