package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// A tool that copies an index keeps its bytes, and so its digest, if it knows each field: tools from before OCI 1.1 know no others.
func TestToolsOfAnyAgeKeepTheDigestsOfTheList(t *testing.T) {
	old := []string{"mediaType", "digest", "size", "urls", "annotations", "platform"}
	r := written(t)
	p, err := readProgram(filepath.Join(r.programs, "vmapd-"+r.processors[0]), r.processors[0])
	if err != nil {
		t.Fatal(err)
	}
	outer, err := layout.ImageIndexFromPath(filepath.Join(r.out, imageName))
	if err != nil {
		t.Fatal(err)
	}
	m, err := outer.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	digest := m.Manifests[0].Digest
	var index struct{ Manifests []map[string]any }
	if err := json.Unmarshal([]byte(mustRead(t, r.out, imageName, "blobs", digest.Algorithm, digest.Hex)), &index); err != nil {
		t.Fatal(err)
	}
	if len(index.Manifests) == 0 {
		t.Error("there are no images")
	}
	for _, entry := range index.Manifests {
		for field := range entry {
			if !slices.Contains(old, field) {
				t.Errorf("an entry of the index has the field %s", field)
			}
		}
	}
	if got, want := mustRead(t, r.out, listName), fmt.Sprintf("%s:%s@%s\n", imageName, p.version, digest); got != want {
		t.Errorf("%s has %q, want %q", listName, got, want)
	}
	if sums := mustRead(t, r.out, sumsName); !strings.Contains(sums, "  "+listName+"\n") {
		t.Errorf("%s says nothing about %s:\n%s", sumsName, listName, sums)
	}
}
