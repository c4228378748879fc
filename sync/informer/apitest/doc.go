// Package apitest is an API server for tests. client-go can list and watch Services,
// EndpointSlices, Nodes and ServiceCIDRs over real HTTP, and write events.
//
// client-go's own fake clientset answers from memory, without the failures of a network:
// watches that end, resource versions that expire, servers that are away or refuse one kind,
// and proxies that respond in the server's place. This server has these failures on demand.
//
// It speaks protobuf and JSON like a real one, and HTTP/2 with [Options.Secure]. It keeps objects
// in memory, and does not validate them.
package apitest
