// Package names finds the addresses of things that people name: both ends of a connection.
//
//	"shop/web:http" ──ParseDestination──> Ref ─┐
//	"pod/web-1"     ──ParseSource───────> Ref ─┴─ Directory.Resolve ──> addresses, node
//
// A [Directory] has the objects, of manifests or of a cluster. Some of them no proxy reads: pods, and Services'
// selectors. They are there only if they were in the manifests, or if the API server was asked for them. The names of
// endpoints' pods are also in EndpointSlices (targetRef).
//
// The package takes values and returns values, and knows no API server.
package names
