package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// fault is a fault to plant.
type fault struct {
	file     string // in the module
	old, new string // parts of it
	what     string
}

// planted returns the file with the fault.
func (f fault) planted(module string) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(module, f.file))
	if err != nil {
		return nil, err
	}
	if n := strings.Count(string(b), f.old); n != 1 {
		return nil, fmt.Errorf("%s has the text to replace %d times, not once:\n%s", f.file, n, f.old)
	}
	return []byte(strings.Replace(string(b), f.old, f.new, 1)), nil
}

// overlay plants the fault. It returns the file that tells the go command so.
func (f fault) overlay(dir string) (string, error) {
	b, err := f.planted(".")
	if err != nil {
		return "", err
	}
	original, err := filepath.Abs(f.file)
	if err != nil {
		return "", err
	}
	changed, list := filepath.Join(dir, "planted.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(changed, b, 0o600); err != nil {
		return "", err
	}
	return list, os.WriteFile(list, replace, 0o600)
}

// find searches for a fault, and prints its line of the table.
func (f fault) find(ctx context.Context, to io.Writer, dir string, o options) (found bool, err error) {
	overlay, err := f.overlay(dir)
	if err != nil {
		return false, err
	}
	fmt.Fprintf(to, "| %s | `%s` |", f.what, f.file)
	defer fmt.Fprintln(to)
	for _, s := range searches {
		if !s.reaches(f.file) || found && !o.all {
			_, _ = fmt.Fprint(to, " |")
			continue
		}
		r, err := s.search(ctx, overlay, dir, o.limit)
		if err != nil {
			return false, err
		}
		found = found || r.found
		fmt.Fprintf(to, " %v |", r)
	}
	return found, nil
}
