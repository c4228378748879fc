// Package manifest is a source of objects that needs no API server: files and
// folders of manifests, in YAML or JSON.
//
//	bytes ──Parse──> Objects ──ApplyTo──> model.Builder
//	  ^                 │
//	 Load, Source       └──Locate──> "web.yaml:14" for a model.Problem
//
// [Parse] is pure. It reads Services, EndpointSlices, Nodes and ServiceCIDRs, also
// in Lists; objects of other kinds are counted and left alone, so a whole
// application's manifests can be given. Like an API server it ignores unknown
// fields and is strict about types. What is wrong costs as little as possible, and
// one line of text:
//
//   - bad syntax costs the document (YAML documents are separated by ---),
//   - a wrong type, a missing name or a key that is there twice costs the object,
//   - the second of two objects of one kind and name is refused.
//
// Hostile input costs bounded time and memory: see the limits in limits.go.
//
// [Load] reads files and folders once, for dry runs. [Source] follows them.
package manifest
