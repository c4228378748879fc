// Package wire decodes protobuf from an API server with less garbage than client-go's
// serializer. At a start in a large cluster, most garbage comes from decoding:
//
//	                          client-go                      wire
//	list of 1,000 Services    5.7 ms, 6.0 MB, 48,017 allocs  3.2 ms, 2.6 MB, 40,004 allocs
//	event of a Service        9.5 us, 6.4 kB                 7.4 us, 2.8 kB
//	event of a slice with
//	1 endpoint               10.5 us, 4.9 kB                 5.5 us, 2.2 kB
//	100 endpoints             155 us, 90 kB                  125 us, 63 kB
//
// (BenchmarkList and BenchmarkWatch, on one core of a Xeon.)
//
// The standard decoder copies each object twice before it reads it, once from the event of a
// watch and once from the envelope with its kind. It also decodes metadata.managedFields, a
// large part of an object that no proxy reads. This package reads the event and the envelope
// in place, and passes all but the managed fields to the generated Unmarshal of the object's
// type:
//
//	frame of a watch                      (length, by client-go)
//	└ metav1.WatchEvent                   type, object
//	  └ "k8s\x00", runtime.Unknown        apiVersion, kind, raw
//	    └ corev1.Service                  ──> Unmarshal
//	      └ metadata: metav1.ObjectMeta   ──> Unmarshal, without managedFields
//
// This is for objects and lists of the kinds in a scheme. The standard decoder reads everything
// else, and every message that is not as expected: its errors describe invalid bytes.
package wire
