package manifest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vmapd/vmapd/model"
)

// Load reads files and folders of manifests, once.
//
// In a folder and its sub-folders it reads files that end in .yaml, .yml or .json, in the
// order of their names. It skips names that begin with a dot, and so reads a mounted
// ConfigMap only once and not also under ..data. It reads links to files, and follows none to a folder
// but a given one. A file in paths may have any name; "-" is the standard input.
//
// It returns the valid objects and all errors: an error in a file, an object that an earlier
// file defines. If one of the paths can't be read, it fails.
func Load(paths []string) (*Objects, []error, error) {
	_, files, err := load(paths)
	if err != nil {
		return nil, nil, err
	}
	o := merge(files)
	return o, o.errs, nil
}

func load(paths []string) ([]place, []*file, error) {
	places := look(paths)
	files := read(places, nil)
	for _, f := range files {
		given := func(path string) bool { return filepath.Clean(path) == f.at.path }
		if f.unreadable && slices.ContainsFunc(paths, given) {
			return nil, nil, f.errs[0]
		}
	}
	return places, files, nil
}

// stdin is the path of the standard input.
const stdin = "-"

// place is a file, or what can't be read. It changes with the content, but that of a pipe, which is read once.
type place struct {
	path     string
	size     int64
	modified time.Time
	mode     fs.FileMode
}

// look finds the manifests at the paths, each once, and what can't be read.
func look(paths []string) (places []place) {
	seen := map[string]bool{}
	add := func(path string, info fs.FileInfo) {
		at := place{path: filepath.Clean(path)}
		if info != nil && info.Mode().IsRegular() {
			at.size, at.modified, at.mode = info.Size(), info.ModTime(), info.Mode()
		}
		if !seen[at.path] {
			seen[at.path] = true
			places = append(places, at)
		}
	}
	for _, root := range paths {
		if info, err := os.Stat(root); err != nil || !info.IsDir() { // it may be the standard input
			add(root, info)
			continue
		}
		root += "/" // a given link is followed
		_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				add(path, nil)
			case path != root && strings.HasPrefix(entry.Name(), "."):
				if entry.IsDir() {
					return fs.SkipDir
				}
			case slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(path))):
				info, err := os.Stat(path)
				if err == nil && info.Mode().IsRegular() || err != nil && !errors.Is(err, fs.ErrNotExist) {
					add(path, info) // else it is gone since, or a link to nowhere
				}
			}
			return nil
		})
	}
	return places
}

// read reads the files that are not as before.
func read(places []place, before []*file) (files []*file) {
	old := map[string]*file{}
	for _, f := range before {
		old[f.at.path] = f
	}
	for _, at := range places {
		f := old[at.path]
		if f == nil || f.at != at {
			f = open(at, f != nil && len(f.objects) > 0)
		}
		files = append(files, f)
	}
	return files
}

// open reads a file, which had objects at the last look or not.
func open(at place, had bool) *file {
	data, err := content(at.path)
	switch {
	case err != nil:
		if p := (*fs.PathError)(nil); errors.As(err, &p) {
			err = p.Err
		}
		err = fmt.Errorf("cannot read %s: %w", model.OneLine(at.path), err)
		return &file{at: at, errs: []error{err}, unreadable: true}
	case len(data) == 0 && had:
		// A program is probably about to write it: shells truncate a file before they start the program that fills it.
		return &file{at: at, errs: []error{failure(at.path + ": is empty: remove the file to remove its objects")}}
	}
	f := parse(at.path, data)
	f.at = at
	return f
}

// content returns what is in a file. It may be one byte more than a manifest may have.
func content(path string) ([]byte, error) {
	from := os.Stdin
	if path != stdin {
		var err error
		if from, err = os.Open(path); err != nil {
			return nil, err
		}
		defer from.Close()
	}
	return io.ReadAll(io.LimitReader(from, maxFileSize+1))
}
