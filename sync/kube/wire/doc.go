// Package wire decodes what an API server sends in protobuf with less garbage than
// client-go's serializer: of a start in a large cluster, decoding is most of what has
// to be collected.
//
// The standard decoder copies each object twice before it reads it, once out of the
// event of a watch and once out of the envelope with its kind, and makes Go values of
// metadata.managedFields, which is a large part of an object and which no proxy reads.
// Here the event and the envelope are taken apart where they lie, and the managed fields
// are left out of what the generated Unmarshal of the object's type gets to see:
//
//	frame of a watch                      (length, by client-go)
//	└ metav1.WatchEvent                   type, object
//	  └ "k8s\x00", runtime.Unknown        apiVersion, kind, raw
//	    └ corev1.Service                  ──> Unmarshal
//	      └ metadata: metav1.ObjectMeta   ──> Unmarshal, without managedFields
//
// Objects and lists of the kinds in a scheme are read like this. All else, and all that
// is not quite as expected, is left to the standard decoder: it is also the one that says
// what is wrong with bytes that make no sense.
package wire
