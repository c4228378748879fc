// Package demo holds the manifests of "vmapd demo", so that the program brings them
// along.
package demo

import "embed"

// Manifests are the folders before and after: the world as it begins, and what changes
// in it when pod-1 goes away and pod-4 comes.
//
//go:embed before/*.yaml after/*.yaml
var Manifests embed.FS
