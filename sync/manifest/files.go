package manifest

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Load reads files and folders of manifests, once.
//
// In a folder and its sub-folders it reads files that end in .yaml, .yml or .json, in the
// order of their names. It skips names that begin with a dot, and so reads a mounted
// ConfigMap only once and not also under ..data. It reads links to files, and follows none to a folder
// but a given one. A file in paths may have any name; "-" is the standard input.
//
// It returns the valid objects and all errors: an error in a file, an object that an earlier
// file defines. If one of the paths can't be read, it fails. Pods are read, too, and the API objects stay, see [Raw].
func Load(paths []string) (*Objects, []error, error) { return newTree(paths, true).load() }

// tree has the files at the given paths.
type tree struct {
	paths []string
	stdin io.Reader
	all   bool // see Load

	seen, read []place // at the last look, and when files were read
	files      []*file // in effect; nil before the first look
}

// place is where a file was seen. It changes with the content, but that of a pipe, which is read once.
type place struct {
	path     string
	size     int64
	modified time.Time
	mode     fs.FileMode
}

func newTree(paths []string, all bool) *tree { return &tree{paths: paths, all: all, stdin: os.Stdin} }

func (t *tree) load() (*Objects, []error, error) {
	errs, missing := t.refresh()
	if missing != nil {
		return nil, nil, missing
	}
	objects, twice := merge(t.files)
	return objects, append(errs, twice...), nil
}

// refresh looks at all files, and returns all present errors, and that of a given path that can't be read. It reads
// what has changed once the next look finds everything the same: before, a file may be half written.
func (t *tree) refresh() (errs []error, missing error) {
	var now []place
	var lost []string
	for _, root := range t.paths {
		find(root, func(path string, info fs.FileInfo, err error) {
			at := place{path: filepath.Clean(path)}
			switch {
			case err == nil && slices.ContainsFunc(now, func(p place) bool { return p.path == at.path }):
				// given twice
			case err == nil:
				if info != nil && info.Mode().IsRegular() {
					at.size, at.modified, at.mode = info.Size(), info.ModTime(), info.Mode()
				}
				now = append(now, at)
			case path == root || !errors.Is(err, fs.ErrNotExist): // else it is gone since, or a link to nowhere
				err = unreadable(path, err)
				errs, lost = append(errs, err), append(lost, at.path)
				if path == root {
					missing = cmp.Or(missing, err)
				}
			}
		})
	}
	if t.files == nil || slices.Equal(now, t.seen) && !slices.Equal(now, t.read) {
		t.update(now, lost)
		t.read = now
	}
	t.seen = now
	for _, f := range t.files {
		errs = append(errs, cmp.Or(f.refused, f).errs...)
	}
	return errs, missing
}

// update reads what has changed. What is at or under a lost path stays in effect.
func (t *tree) update(now []place, lost []string) {
	before := map[string]*file{}
	for _, f := range t.files {
		before[f.at.path] = f
	}
	next := make([]*file, 0, len(now))
	for _, at := range now {
		f := before[at.path]
		delete(before, at.path)
		switch {
		case f == nil:
			f = t.open(at)
		case f.at != at:
			f = f.replaced(t.open(at))
		}
		next = append(next, f)
	}
	for _, f := range t.files {
		under := func(path string) bool { return strings.HasPrefix(f.at.path+"/", path+"/") }
		if before[f.at.path] != nil && slices.ContainsFunc(lost, under) {
			next = append(next, f)
		}
	}
	t.files = next
}

// find calls each with a file, or with each manifest in a folder, and with what can't be read.
func find(root string, each func(path string, info fs.FileInfo, err error)) {
	if root == stdin {
		each(root, nil, nil)
		return
	}
	if info, err := os.Stat(root); err != nil || !info.IsDir() {
		each(root, info, err)
		return
	}
	_ = fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		path := filepath.Join(root, name)
		switch {
		case name == ".":
			path = root
		case strings.HasPrefix(entry.Name(), ".") && entry.IsDir():
			return fs.SkipDir
		case strings.HasPrefix(entry.Name(), "."):
			return nil
		}
		if err != nil {
			each(path, nil, err)
		} else if slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(name))) {
			if info, err := os.Stat(path); err != nil || info.Mode().IsRegular() {
				each(path, info, err)
			}
		}
		return nil
	})
}

// stdin is the path of the standard input.
const stdin = "-"

// open reads a file.
func (t *tree) open(at place) *file {
	name, from := "stdin", t.stdin
	if at.path != stdin {
		opened, err := os.Open(at.path)
		if err != nil {
			return &file{at: at, errs: []error{unreadable(at.path, err)}}
		}
		defer opened.Close()
		name, from = at.path, opened
	}
	// One byte more than allowed, so that the parser reports the error.
	data, err := io.ReadAll(io.LimitReader(from, maxFileSize+1))
	if err != nil {
		return &file{at: at, errs: []error{unreadable(at.path, err)}}
	}
	f := parseFile(name, data, t.all)
	f.at = at
	return f
}

// replaced returns what is in effect after the next content: f, if that is invalid.
func (f *file) replaced(next *file) *file {
	if next.at.size == 0 && len(f.objects) > 0 {
		// A program is probably about to write it: shells truncate a file before they start the program that fills it.
		next.errs = []error{failure(next.at.path + ": is empty: remove the file to remove its objects")}
	}
	if len(next.errs) == 0 || len(f.errs) > 0 && len(next.objects) > 0 {
		return next
	}
	kept := *f
	kept.at, kept.refused = next.at, next
	return &kept
}
