// Package manifest is a source of objects from files and folders of manifests, in YAML or
// JSON, without an API server.
//
//	bytes ──Parse──> Objects ──ApplyTo──> model.Builder
//	  ^                 │
//	 Load, Source       └──Locate──> "web.yaml:14" for a model.Problem
//
// [Parse] is pure. It reads Services, EndpointSlices, Nodes and ServiceCIDRs, also in Lists.
// It counts and ignores objects of other kinds, so that all manifests of an application can
// be given. Like an API server it ignores unknown fields and is strict about types. An error
// has one line of text and affects as little as possible:
//
//   - invalid syntax: the document is ignored (YAML documents are separated by ---),
//   - a wrong type, a missing name or a duplicate key: the object is ignored,
//   - two objects of one kind and name: the second is ignored.
//
// A document becomes a tree of yaml.Nodes, which know their lines. A valid object is decoded
// by sigs.k8s.io/json from JSON, or from the tree written as JSON. Only an invalid one is
// compared with its type field by field, for the path and the line of each error.
//
// Hostile input takes bounded time and memory: see limits.go.
//
// [Load] reads files and folders once, for dry runs. [LoadAll] also reads pods and what makes them, for
// people who ask why. [Source] follows the files.
package manifest
