package manifest

import (
	"bytes"
	"errors"
	"fmt"
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
// It returns the valid objects and all errors: a path that doesn't exist, an error in a
// file, an object that an earlier file defines.
func Load(paths []string) (*Objects, []Error) { return load(newTree(paths)) }

// LoadAll is Load for commands that explain: it also reads Pods, Deployments, StatefulSets,
// DaemonSets and ReplicaSets, and keeps the API objects, see [Raw].
func LoadAll(paths []string) (*Objects, []Error) {
	t := newTree(paths)
	t.all = true
	return load(t)
}

func load(t *tree) (*Objects, []Error) {
	errs := t.refresh()
	objects, more := merge(t.inEffect())
	return objects, append(errs, more...)
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
	path string
	data []byte // as last read
	all  bool   // see LoadAll
	once bool   // a pipe or the standard input: it can't be read again

	file *file   // in effect: the last valid content, or the valid part of the first
	errs []Error // of data
}

func newTree(paths []string) *tree {
	return &tree{paths: paths, stdin: os.Stdin, watch: func(string) {}, files: make(map[string]*tracked)}
}

// refresh reads all files, and returns all present errors. It parses only files that
// changed.
func (t *tree) refresh() []Error {
	s := scan{tree: t, before: t.order, files: make(map[string]*tracked)}
	for _, path := range t.paths {
		s.root(path)
	}
	t.files, t.order = s.files, s.order
	return s.errs
}

// inEffect returns the contents in effect, in order.
func (t *tree) inEffect() []*file {
	out := make([]*file, 0, len(t.order))
	for _, key := range t.order {
		out = append(out, t.files[key].file)
	}
	return out
}

// scan is one pass over a tree.
type scan struct {
	tree   *tree
	before []string

	files   map[string]*tracked
	order   []string
	visited []string // real paths of linked folders, against loops
	errs    []Error
}

func (s *scan) root(path string) {
	if path == "-" {
		s.add(path, nil)
		return
	}
	// Events of its folder tell when a path is replaced, or comes back.
	s.tree.watch(filepath.Dir(path))
	info, err := os.Stat(path)
	switch {
	case err != nil:
		s.keep(path, err)
	case info.IsDir():
		s.folder(path)
	default:
		s.watchTarget(path)
		s.add(path, info)
	}
}

func (s *scan) folder(dir string) {
	target, err := filepath.EvalSymlinks(dir)
	if err == nil && slices.Contains(s.visited, target) {
		return
	}
	s.visited = append(s.visited, target)
	s.tree.watch(dir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		s.keep(dir, err)
		return
	}
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") {
			continue
		}
		path := filepath.Join(dir, name)
		info, err := e.Info()
		if err == nil && e.Type()&fs.ModeSymlink != 0 {
			info, err = os.Stat(path)
		}
		wanted := slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(name)))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			// Gone since the folder was listed, or a link to nowhere.
		case err != nil && wanted:
			s.keep(path, err)
		case err != nil:
		case info.IsDir():
			s.folder(path)
		case wanted && info.Mode().IsRegular():
			if e.Type()&fs.ModeSymlink != 0 {
				s.watchTarget(path)
			}
			s.add(path, info)
		}
	}
}

// watchTarget watches the folder of a link's target.
func (s *scan) watchTarget(path string) {
	if target, err := filepath.EvalSymlinks(path); err == nil && filepath.Dir(target) != filepath.Dir(path) {
		s.tree.watch(filepath.Dir(target))
	}
}

// keep keeps all objects at or under path in effect, because path can't be read any more. It
// is not called for files that are known to be deleted.
func (s *scan) keep(path string, err error) {
	e := fileError(path, err)
	e.kept = true
	s.errs = append(s.errs, e)
	prefix := filepath.Clean(path) + string(filepath.Separator)
	for _, key := range s.before {
		if f := s.tree.files[key]; s.files[key] == nil && (f.path == path || strings.HasPrefix(key, prefix)) {
			s.files[key] = f
			s.order = append(s.order, key)
		}
	}
}

// add reads a file. The info is nil for the standard input.
func (s *scan) add(path string, info fs.FileInfo) {
	key := filepath.Clean(path)
	if s.files[key] != nil {
		return // given twice
	}
	f := s.tree.files[key]
	if f == nil {
		f = &tracked{path: path, all: s.tree.all, once: info == nil || !info.Mode().IsRegular()}
	}
	if f.file == nil || !f.once {
		if err := f.read(info, s.tree.stdin); errors.Is(err, fs.ErrNotExist) {
			return
		}
	}
	s.errs = append(s.errs, f.errs...)
	s.files[key] = f
	s.order = append(s.order, key)
}

// read reads the file, and parses it if it changed.
func (f *tracked) read(info fs.FileInfo, stdin io.Reader) error {
	name := f.path
	if info == nil {
		name = "stdin"
	}
	data, err := f.content(info, stdin)
	if err != nil {
		f.data = nil
		f.use(&file{name: name, errs: []Error{fileError(name, err)}})
		return err
	}
	unchanged := f.data != nil && bytes.Equal(f.data, data)
	f.data = data
	switch {
	case unchanged:
	case len(data) == 0 && f.file != nil && len(f.file.objects) > 0:
		// A program is probably about to write it: shells truncate a file before they start
		// the program that fills it.
		f.use(&file{name: name, errs: []Error{{File: name, Message: "is empty: remove the file to remove its objects"}}})
	default:
		f.use(parseFile(name, data, f.all))
	}
	return nil
}

// use puts next into effect, unless it would replace valid contents by invalid ones.
func (f *tracked) use(next *file) {
	f.errs = next.errs
	if len(next.errs) == 0 || f.file == nil || len(f.file.errs) > 0 && len(next.objects) > 0 {
		f.file = next
		return
	}
	for i := range f.errs {
		f.errs[i].kept = true
	}
}

func (f *tracked) content(info fs.FileInfo, stdin io.Reader) ([]byte, error) {
	r := stdin
	if info != nil {
		file, err := os.Open(f.path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		r = file
	}
	// One byte more than allowed, so that the parser reports the error.
	return io.ReadAll(io.LimitReader(r, maxFileSize+1))
}

func fileError(name string, err error) Error {
	e := Error{File: name, Message: err.Error(), Err: err}
	// The path is in File already.
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		e.Message = fmt.Sprintf("%s: %v", p.Op, p.Err)
	}
	return e
}
