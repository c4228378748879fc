package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const sumsName = "SHA256SUMS"

// writeSums writes the checksums of all files in a folder, in the form of sha256sum(1).
func writeSums(dir string) error {
	var lines strings.Builder
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%s  %s\n", sumOf(data), filepath.ToSlash(name))
		return nil
	}); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, sumsName), []byte(lines.String()), 0o644)
}
