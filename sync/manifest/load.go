package manifest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Load reads files and folders of manifests, once.
//
// In a folder and its sub-folders it reads files that end in .yaml, .yml or .json, in the
// order of their names. It skips names that begin with a dot, and so reads a mounted
// ConfigMap only once and not also under ..data. A file in paths may have any name; "-" is
// the standard input.
//
// It returns the valid objects and all errors: an error in a file, an object that an earlier
// file defines. If one of the paths can't be read, it fails.
func Load(paths []string) (*Objects, []Error, error) { return newTree(paths).load() }

// LoadAll is Load for commands that explain: it also reads Pods, Deployments, StatefulSets,
// DaemonSets and ReplicaSets, and keeps the API objects, see [Raw].
func LoadAll(paths []string) (*Objects, []Error, error) {
	t := newTree(paths)
	t.all = true
	return t.load()
}

func (t *tree) load() (*Objects, []Error, error) {
	errs := t.refresh()
	if err := t.missing(errs); err != nil {
		return nil, nil, err
	}
	objects, twice := merge(t.inEffect())
	return objects, append(errs, twice...), nil
}

// tree has the files at the given paths.
type tree struct {
	paths []string
	stdin io.Reader
	all   bool             // see LoadAll
	watch func(dir string) // called before a folder is read, so that no change is missed

	files map[string]*tracked
	order []string // the keys of files, in the order of the paths
}

// tracked is a file with its objects in effect.
type tracked struct {
	data []byte  // as last read
	file *file   // in effect: the last valid content, or the valid part of the first
	errs []Error // of data
}

func newTree(paths []string) *tree {
	return &tree{paths: paths, stdin: os.Stdin, watch: func(string) {}}
}

// missing returns the error of reading one of the paths themselves.
func (t *tree) missing(errs []Error) error {
	for _, e := range errs {
		if e.Err != nil && slices.Contains(t.paths, e.File) {
			return e
		}
	}
	return nil
}

// inEffect returns the contents in effect, in order.
func (t *tree) inEffect() (out []*file) {
	for _, path := range t.order {
		out = append(out, t.files[path].file)
	}
	return out
}

// refresh reads all files, and returns all present errors. It parses only files that changed.
func (t *tree) refresh() []Error {
	s := scan{tree: t, files: make(map[string]*tracked), visited: make(map[string]bool)}
	for _, path := range t.paths {
		s.visit(path, true)
	}
	t.files, t.order = s.files, s.order
	return s.errs
}

// scan is one pass over a tree.
type scan struct {
	*tree
	files   map[string]*tracked
	order   []string
	visited map[string]bool // real paths of folders, against loops
	errs    []Error
}

// visit reads a file, or all manifests in a folder.
func (s *scan) visit(path string, given bool) {
	if path == "-" {
		s.read("stdin", s.stdin, true)
		return
	}
	wanted := given || slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(path)))
	s.watch(filepath.Dir(path)) // its events report when a path is replaced, or comes back
	target, err := filepath.EvalSymlinks(path)
	var info fs.FileInfo
	if err == nil {
		info, err = os.Stat(target)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && !given:
		// Gone since the folder was listed, or a link to nowhere.
	case err != nil && wanted:
		s.keep(path, err)
	case err != nil:
	case info.IsDir():
		s.folder(path, target)
	case given || wanted && info.Mode().IsRegular():
		if filepath.Dir(target) != filepath.Dir(path) {
			s.watch(filepath.Dir(target))
		}
		f, err := os.Open(path)
		if err != nil {
			s.keep(path, err)
			return
		}
		defer f.Close()
		s.read(filepath.Clean(path), f, !info.Mode().IsRegular())
	}
}

func (s *scan) folder(path, target string) {
	if s.visited[target] {
		return
	}
	s.visited[target] = true
	s.watch(path)
	entries, err := os.ReadDir(path)
	if err != nil {
		s.keep(path, err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			s.visit(filepath.Join(path, e.Name()), false)
		}
	}
}

// keep keeps all objects at or under path in effect, because path can't be read any more. It
// is not called for files that are known to be deleted.
func (s *scan) keep(path string, err error) {
	s.errs = append(s.errs, fileError(path, err))
	prefix := filepath.Clean(path)
	for _, key := range s.tree.order {
		if key == prefix || strings.HasPrefix(key, prefix+string(filepath.Separator)) {
			s.add(key, s.tree.files[key])
		}
	}
}

func (s *scan) add(path string, f *tracked) {
	if s.files[path] == nil { // not given twice
		s.files[path] = f
		s.order = append(s.order, path)
	}
}

// read reads a file, unless that is a pipe that was read before, and parses it if it changed.
func (s *scan) read(path string, from io.Reader, pipe bool) {
	f := s.tree.files[path]
	if f == nil {
		f = &tracked{file: new(file)}
	} else if pipe {
		s.add(path, f)
		return
	}
	// One byte more than allowed, so that the parser reports the error.
	data, err := io.ReadAll(io.LimitReader(from, maxFileSize+1))
	if err != nil {
		s.keep(path, err)
		return
	}
	if f.data == nil || !bytes.Equal(f.data, data) {
		f.use(path, data, s.all)
	}
	s.errs = append(s.errs, f.errs...)
	s.add(path, f)
}

// use puts data into effect, unless it would replace valid contents by invalid ones.
func (f *tracked) use(path string, data []byte, all bool) {
	next := parseFile(path, data, all)
	if len(data) == 0 && len(f.file.objects) > 0 {
		// A program is probably about to write it: shells truncate a file before they start
		// the program that fills it.
		next.errs = []Error{{File: path, Message: "is empty: remove the file to remove its objects"}}
	}
	first := f.data == nil
	f.data, f.errs = data, next.errs
	if first || len(next.errs) == 0 || len(f.file.errs) > 0 && len(next.objects) > 0 {
		f.file = next
	}
}

func fileError(path string, err error) Error {
	e := Error{File: path, Message: err.Error(), Err: err}
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		e.Message = p.Err.Error() // the path is in File
	}
	return e
}
