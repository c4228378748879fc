// Package slim reads Services and EndpointSlices from an API server, with no more of them than a
// proxy needs. Of a cluster with a million endpoints, a start would otherwise make a gigabyte of
// garbage: names of pods, zones and owners, a pointer for each condition, and managed fields.
//
//	                          standard decoder         slim
//	slice of 100 endpoints    131 us, 103 kB           34 us, 2.6 kB
//
// (BenchmarkObject, on one core of an EPYC.)
//
//	watch, list ──> protobuf ──> source ──> EndpointSlice, Service  ──> model.Builder
//	                                        (name, version, model's fields)
//
// A source walks through a message, and skips the fields that nobody asks for, without validating
// them. The generated functions read a Service's spec and status.
//
// Everything that is not as expected is read by the standard decoder and converted, by [From]: objects
// of other kinds, invalid bytes, for which its errors are the better ones, and JSON (750 us for the
// slice above).
//
// The content of an EndpointSlice is in memory that the next one uses again, see
// [EndpointSlice.Release].
package slim
