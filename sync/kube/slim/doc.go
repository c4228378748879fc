// Package slim reads Services and EndpointSlices from an API server, with no more of them than a proxy needs. Of a
// cluster with a million endpoints, a start would otherwise make a gigabyte of garbage: names of pods, zones and
// owners, a pointer for each condition, and managed fields. A slice of 100 endpoints takes 2.6 kB in place of 103 kB,
// and a quarter of the time.
//
//	watch, list ──> protobuf ──> source ──> EndpointSlice, Service  ──> model.Builder
//	                                        (name, version, model's fields)
//
// A source walks through a message, and skips the fields that nobody asks for, without validating them. The generated
// function reads a Service, one at a time also in a list. Everything that is not as expected is read by the standard
// decoder and converted, by [From]: objects of other kinds, JSON, and invalid bytes, for which its errors are the
// better ones.
//
// The content of an EndpointSlice is in memory that the next one uses again, see [EndpointSlice.Release].
package slim
