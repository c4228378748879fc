// Package model decides what a node's Service proxy does with traffic.
//
// A [Builder] takes Kubernetes objects (Services, EndpointSlices, this Node, ServiceCIDRs) in the plain form of
// objects.go and makes an immutable [Snapshot] of them:
//
//	Service, EndpointSlice, Node, ServiceCIDR ──> Builder ──> Snapshot
//	                                                │
//	                                                └──> Problems
//
// Everything about traffic is decided here and only here: the endpoints of a service port, the owner of an address that
// two Services claim, the verdict about a connection, and its source address. The backends translate these decisions;
// they never look at a Service's policy a second time.
//
// The files refer in one direction: values (of configuration, objects and snapshots), then parsed objects (service.go,
// slice.go, owners.go and what is next to them), then the Builder (builder.go, builder_settings.go, update.go,
// selection.go).
//
// The package is pure: standard library only, no sockets, no files, no clock, no Kubernetes.
package model
