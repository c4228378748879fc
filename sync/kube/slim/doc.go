// Package slim reads Services and EndpointSlices from an API server, with no more of them than a
// proxy needs. Of a cluster with a million endpoints, a start would otherwise make a gigabyte of
// garbage: names of pods, zones and owners, a pointer for each condition, and managed fields.
//
//	                          standard decoder         slim
//	slice of 100 endpoints
//	  protobuf                131 us, 103 kB           34 us, 2.6 kB
//	  JSON                    750 us, 91 kB            86 us, 2.8 kB
//	Service
//	  protobuf                6.6 us, 5.2 kB           6.3 us, 2.7 kB
//	  JSON                    40 us, 6.5 kB            20 us, 4.5 kB
//
// (BenchmarkObject, on one core of an EPYC.)
//
//	watch, list ──> bytes ──> source ──> EndpointSlice, Service ──> model.Builder
//	                protobuf, JSON       (name, version, sum, model's fields)
//
// A source walks through a message of either format, and skips the fields that nobody asks for,
// without validating them. So there is one description of each kind, by the numbers and names of its
// fields.
//
// Everything that is not as expected is read by the standard decoder and converted, by [From]: objects
// of other kinds, other formats, and invalid bytes, for which its errors are the better ones.
//
// The content of an EndpointSlice is in memory that the next one uses again, see
// [EndpointSlice.Release].
package slim
