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
// Of a folder it reads what ends in .yaml, .yml or .json, in the order of the names,
// and so on in its sub-folders. Names that begin with a dot are skipped, so a mounted
// ConfigMap counts once and not a second time under its ..data. A file that is
// named in paths is read whatever it is called; "-" is the standard input.
//
// It returns what could be read, and all that is wrong with the rest: a path that
// doesn't exist, an error in a file, an object that was already defined in an
// earlier file.
func Load(paths []string) (*Objects, []Error) {
	t := newTree(paths)
	errs := t.refresh()
	objects, more := merge(t.inEffect())
	return objects, append(errs, more...)
}

// tree is what the given paths hold, file by file.
type tree struct {
	paths []string
	stdin io.Reader
	watch func(dir string) // called before a folder is read, so that no change to it is missed

	files map[string]*tracked
	order []string // the keys of files, in the order of the paths
}

// tracked is a file and what is in effect of it.
type tracked struct {
	path string
	data []byte // as it was read last
	once bool   // a pipe or the standard input: it can't be read again

	file *file   // in effect: the last good content, or what could be used of the first
	errs []Error // of the content that was read last
}

func newTree(paths []string) *tree {
	return &tree{paths: paths, stdin: os.Stdin, watch: func(string) {}, files: make(map[string]*tracked)}
}

// refresh reads all files, and returns everything that is wrong with the tree as it is
// now. Only files that changed are parsed.
func (t *tree) refresh() []Error {
	s := scan{tree: t, before: t.order, files: make(map[string]*tracked)}
	for _, path := range t.paths {
		s.root(path)
	}
	t.files, t.order = s.files, s.order
	return s.errs
}

// inEffect returns what is in effect of each file, in order.
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
	// The folder around a path tells when it is replaced, and when it comes back.
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

// watchTarget watches the folder that a linked file really is in.
func (s *scan) watchTarget(path string) {
	if target, err := filepath.EvalSymlinks(path); err == nil && filepath.Dir(target) != filepath.Dir(path) {
		s.tree.watch(filepath.Dir(target))
	}
}

// keep leaves everything at or under path as it was before, because it can't be
// seen any more. Files that are known to be gone never come here.
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

// add reads a file if that is necessary. The info is nil for the standard input.
func (s *scan) add(path string, info fs.FileInfo) {
	key := filepath.Clean(path)
	if s.files[key] != nil {
		return // given twice
	}
	f := s.tree.files[key]
	if f == nil {
		f = &tracked{path: path, once: info == nil || !info.Mode().IsRegular()}
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

// read reads the file and decides what is in effect of it.
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
		// Most often someone is about to write it: shells truncate a file before the
		// program that fills it has even started.
		f.use(&file{name: name, errs: []Error{{File: name, Message: "is empty: remove the file to remove its objects"}}})
	default:
		f.use(parseFile(name, data))
	}
	return nil
}

// use puts next into effect, unless that would replace something good.
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
	// One byte more than allowed: the parser says what is wrong then.
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
