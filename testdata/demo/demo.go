// Package demo holds the manifests of "make demo", so that its program brings them
// along.
package demo

import "embed"

// Manifests are the folders before, ending and after: the world as it begins, and what changes in it when
// pod-4 comes and pod-1 begins to end, and when pod-1 is gone.
//
//go:embed before/*.yaml ending/*.yaml after/*.yaml
var Manifests embed.FS
