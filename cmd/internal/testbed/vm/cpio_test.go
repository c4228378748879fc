package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// list lists an archive: one line for each entry.
func list(t *testing.T, archive []byte) []string {
	t.Helper()
	if len(archive)%4 != 0 {
		t.Errorf("%d bytes are no multiple of four", len(archive))
	}
	var all []string
	for at := 0; ; {
		header := string(archive[at : at+110])
		if header[:6] != "070701" {
			t.Fatalf("at %d: no header: %q", at, header)
		}
		field := func(i int) int {
			n, err := strconv.ParseUint(header[6+8*i:14+8*i], 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		}
		mode, size, nameSize := field(1), field(6), field(11)
		name := strings.TrimSuffix(string(archive[at+110:at+110+nameSize]), "\x00")
		at = (at + 110 + nameSize + 3) &^ 3
		if name == "TRAILER!!!" {
			if at != len(archive) {
				t.Errorf("%d bytes behind the trailer", len(archive)-at)
			}
			return all
		}
		all = append(all, fmt.Sprintf("%o %s %q", mode, name, archive[at:at+size]))
		at = (at + size + 3) &^ 3
	}
}

func TestArchive(t *testing.T) {
	source := t.TempDir()
	for name, data := range map[string]string{"sbin/nft": "#!", "etc/x": "second"} {
		path := filepath.Join(source, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../sbin/nft", filepath.Join(source, "etc/z")); err != nil {
		t.Fatal(err)
	}

	var b bytes.Buffer
	a := newArchive(&b)
	for _, err := range []error{
		a.mergeUsr(), a.file("/etc/x", 0o600, "first"), a.dir("/root", 0o700), a.tree("/", source),
		a.tree("/elsewhere/deep", filepath.Join(source, "etc/z")), a.close(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		`40755 usr ""`,
		`40755 usr/bin ""`, `120777 bin "usr/bin"`,
		`40755 usr/sbin ""`, `120777 sbin "usr/sbin"`,
		`40755 usr/lib ""`, `120777 lib "usr/lib"`,
		`40755 usr/lib64 ""`, `120777 lib64 "usr/lib64"`,
		`40755 etc ""`, `100600 etc/x "first"`,
		`40700 root ""`,
		`120777 etc/z "../sbin/nft"`,
		`100755 usr/sbin/nft "#!"`,
		`40755 elsewhere ""`, `100755 elsewhere/deep "#!"`, // what is named is no link any more
	}
	if diff := cmp.Diff(want, list(t, b.Bytes())); diff != "" {
		t.Errorf("the archive holds (-want +got):\n%s", diff)
	}
}
