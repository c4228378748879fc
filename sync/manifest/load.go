package manifest

import (
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
// ConfigMap only once and not also under ..data. A file in paths may have any name; "-" is
// the standard input.
//
// It returns the valid objects and all errors: an error in a file, an object that an earlier
// file defines. If one of the paths can't be read, it fails.
func Load(paths []string) (*Objects, []Error, error) { return newTree(paths).load() }

// LoadAll is Load for commands that explain: it also reads Pods, and keeps the API objects, see [Raw].
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
	all   bool // see LoadAll

	files map[string]*tracked // nil before the first look
	order []string            // the keys of files, in the order of the paths
}

// tracked is a file with its objects in effect.
type tracked struct {
	seen, read stamp // at the last look, and of the content
	loaded     bool  // it has been read
	file       *file // in effect: the last valid content, or the valid part of the first
	errs       []Error
}

// stamp changes with the content of a file. A pipe has none, and is read once.
type stamp struct {
	size     int64
	modified time.Time
}

func newTree(paths []string) *tree { return &tree{paths: paths, stdin: os.Stdin} }

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

// refresh looks at all files, and returns all present errors. It reads those that have changed once the look after
// finds them the same: before, they may be half written. The first time, it reads all.
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
		s.read("stdin", stamp{}, s.stdin)
		return
	}
	wanted := given || slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(path)))
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
		now := stamp{}
		if info.Mode().IsRegular() {
			now = stamp{info.Size(), info.ModTime()}
		}
		s.read(filepath.Clean(path), now, nil)
	}
}

func (s *scan) folder(path, target string) {
	if s.visited[target] {
		return
	}
	s.visited[target] = true
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

// read reads a file, or from, and parses it, if it has changed and nobody writes it.
func (s *scan) read(path string, now stamp, from io.Reader) {
	f := s.tree.files[path]
	if f == nil {
		f = &tracked{file: new(file)}
	}
	settled := s.tree.files == nil || f.seen == now
	f.seen = now
	if settled && (!f.loaded || f.read != now) {
		if from == nil {
			opened, err := os.Open(path)
			if err != nil {
				s.keep(path, err)
				return
			}
			defer opened.Close()
			from = opened
		}
		// One byte more than allowed, so that the parser reports the error.
		data, err := io.ReadAll(io.LimitReader(from, maxFileSize+1))
		if err != nil {
			s.keep(path, err)
			return
		}
		f.use(path, data, s.all)
		f.loaded, f.read = true, now
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
	f.errs = next.errs
	if !f.loaded || len(next.errs) == 0 || len(f.file.errs) > 0 && len(next.objects) > 0 {
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
