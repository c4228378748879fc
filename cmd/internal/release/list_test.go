package main

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// A tool that copies an index keeps its bytes, and so its digest, if it knows each field: tools from before OCI 1.1 know no others.
func TestToolsOfAnyAgeKeepTheDigestsOfTheList(t *testing.T) {
	old := []string{"mediaType", "digest", "size", "urls", "annotations", "platform"}
	r := example(t, deb(t), deb(t))
	if err := r.write(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	p, err := readProgram(filepath.Join(r.programs, "vmapd-"+r.processors[0]), r.processors[0])
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, v := range variants() {
		outer, err := layout.ImageIndexFromPath(filepath.Join(r.out, v.name))
		if err != nil {
			t.Fatal(err)
		}
		m, err := outer.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		digest := m.Manifests[0].Digest
		fmt.Fprintf(&want, "%s:%s@%s\n", v.name, p.version, digest)
		var index struct{ Manifests []map[string]any }
		if err := json.Unmarshal([]byte(mustRead(t, r.out, v.name, "blobs", digest.Algorithm, digest.Hex)), &index); err != nil {
			t.Fatal(err)
		}
		if len(index.Manifests) == 0 {
			t.Errorf("%s has no images", v.name)
		}
		for _, entry := range index.Manifests {
			for field := range entry {
				if !slices.Contains(old, field) {
					t.Errorf("%s: an entry of the index has the field %s", v.name, field)
				}
			}
		}
	}
	if got := mustRead(t, r.out, listName); got != want.String() {
		t.Errorf("%s has\n%swant\n%s", listName, got, want.String())
	}
	if sums := mustRead(t, r.out, sumsName); !strings.Contains(sums, "  "+listName+"\n") {
		t.Errorf("%s says nothing about %s:\n%s", sumsName, listName, sums)
	}
}
