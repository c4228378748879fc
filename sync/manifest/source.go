package manifest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/files"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// retryPeriod is the time between two looks at paths that can't be read.
const retryPeriod = 2 * time.Second

// Source writes the manifests in files and folders into a [reconcile.State], and follows
// changes of them: files written in place or replaced, folders created and removed, and
// ConfigMaps updated by the kubelet.
//
// Errors never remove objects:
//
//   - A file that becomes invalid, unreadable or empty keeps all of its last valid content
//     until it is valid again or removed.
//   - If one of Paths vanishes, its objects stay. If a file vanishes from a folder, its
//     objects are removed.
//
// A file should be replaced by renaming: half of it may be a valid manifest.
type Source struct {
	Paths []string // files and folders, as for [Load]; the standard input is read once
	Log   *slog.Logger

	current atomic.Pointer[Objects]
	opened  *opened // nil before Open
}

// opened is what Open read.
type opened struct {
	changes  *files.Follower
	follower follower
	errs     []Error
}

// Open reads the manifests, and returns an error if one of Paths can't be read: so a caller finds a
// mistake before it changes anything. Run continues with what was read. Without Run, a Source that
// was opened must not be used again.
func (s *Source) Open() error {
	if len(s.Paths) == 0 {
		return errors.New("read manifests: no path given")
	}
	o := &opened{
		changes:  files.New(s.Log),
		follower: follower{log: s.Log, tree: newTree(s.Paths), reported: make(map[string]bool), bad: make(map[string]bool)},
	}
	o.follower.tree.watch = o.changes.Add
	o.errs = o.follower.tree.refresh()
	if err := missing(s.Paths, o.errs); err != nil {
		o.changes.Close()
		return err
	}
	s.opened = o
	return nil
}

// Locate is [Objects.Locate] for the objects in use. It may be called at any time, and
// returns "" before they are read.
func (s *Source) Locate(p model.Problem) string {
	if o := s.current.Load(); o != nil {
		return o.Locate(p)
	}
	return ""
}

// Run writes the manifests into the state, calls Complete, and then writes differences until ctx
// ends. It calls Open unless that was called; then it may return an error, and writes nothing. It
// logs errors in manifests once, and uses their valid objects.
func (s *Source) Run(ctx context.Context, state *reconcile.State) error {
	if s.opened == nil {
		if err := s.Open(); err != nil {
			return err
		}
	}
	changes, f, errs := s.opened.changes, &s.opened.follower, s.opened.errs
	defer changes.Close()

	use := func(errs []Error) {
		if edits, change := f.change(ctx, errs); len(edits) > 0 {
			state.Update(change, func(b *model.Builder) {
				for _, edit := range edits {
					edit(b)
				}
			})
		}
		s.current.Store(f.objects)
	}

	use(errs)
	state.Complete()
	s.Log.LogAttrs(ctx, slog.LevelInfo, "manifests read",
		slog.Int("files", len(f.tree.order)),
		slog.Int("objects", f.objects.Len()),
		slog.Any("ignored", f.objects.Ignored))

	for {
		period := time.Duration(0)
		if slices.ContainsFunc(errs, func(e Error) bool { return e.Err != nil }) {
			// A path that is missing may come back without an event.
			period = retryPeriod
		}
		if !changes.Next(ctx, period) {
			return nil
		}
		errs = f.tree.refresh()
		use(errs)
	}
}

// missing joins the errors of reading the paths themselves.
func missing(paths []string, errs []Error) error {
	var out []error
	for _, e := range errs {
		if e.Err != nil && slices.Contains(paths, e.File) {
			out = append(out, fmt.Errorf("read manifests: %w", e))
		}
	}
	return errors.Join(out...)
}

// follower computes the changes of the builder.
type follower struct {
	log      *slog.Logger
	tree     *tree
	objects  *Objects        // as the builder has them
	reported map[string]bool // errors after the last round
	bad      map[string]bool // files with errors
}

// change returns the edits that give the builder the objects of the files in effect. It logs
// errs, and objects that are in two files.
func (f *follower) change(ctx context.Context, errs []Error) (edits []func(builder), change reconcile.Change) {
	next, dups := merge(f.tree.inEffect())
	f.say(ctx, slices.Concat(errs, dups))
	add := func(o *object, edit func(builder)) {
		edits = append(edits, edit)
		switch o.ref.Kind {
		case "Service":
			change.Services++
		case "EndpointSlice":
			change.EndpointSlices++
		}
	}
	if f.objects == nil {
		f.objects = new(Objects)
	}
	for _, old := range f.objects.list {
		if next.byRef[old.ref] == nil {
			add(old, old.delete)
		}
	}
	for _, o := range next.list {
		// The same pointer if its file has not changed.
		if old := f.objects.byRef[o.ref]; old == o || old != nil && reflect.DeepEqual(old.value, o.value) {
			continue
		}
		add(o, o.set)
	}
	f.objects = next
	return edits, change
}

// say logs new errors, and files that are valid again.
func (f *follower) say(ctx context.Context, errs []Error) {
	now, bad := make(map[string]bool), make(map[string]bool)
	for _, e := range errs {
		text := e.Error()
		now[text], bad[e.File] = true, true
		if f.reported[text] {
			continue
		}
		message := "error in manifest; using the rest"
		if e.kept {
			message = "error in manifest; keeping its last good state"
		}
		f.log.LogAttrs(ctx, slog.LevelError, message, slog.String("err", text))
	}
	for _, name := range slices.Sorted(maps.Keys(f.bad)) {
		if !bad[name] {
			f.log.LogAttrs(ctx, slog.LevelInfo, "manifest is good again", slog.String("file", name))
		}
	}
	f.reported, f.bad = now, bad
}
