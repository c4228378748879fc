// Package manifest is a source of objects from files and folders of manifests, in YAML or JSON, without an API server.
//
//	files ──Load, Source──> Objects ──ApplyTo──> model.Builder
//	                           │
//	                           └──Located──> "web.yaml:14: " before a model.Problem
//
// Services, EndpointSlices, Nodes and ServiceCIDRs are read, also in Lists, and strictly: an unknown
// field is an error, as is one that is there twice. Pods are read for people who ask why. Objects of other kinds
// are only named, so that all manifests of an application can be given. An object without a
// namespace is in "default". An error has one line of text and affects as little as possible:
//
//   - invalid syntax: the document is ignored (YAML documents are separated by ---),
//   - an unknown field, a wrong type, a missing name: the object is ignored,
//   - two objects of one kind and name: the second is ignored.
//
// It has the line where the document begins, the object, and the decoder's words with the path of the field.
//
// [Load] reads files and folders once. A [Source] follows the files.
package manifest
