package manifest

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// lookPeriod is the time between two looks at the files.
const lookPeriod = 500 * time.Millisecond

// Source writes the manifests in files and folders into a [reconcile.State], and follows changes of them within a
// second: files written in place or replaced, folders created and removed, and ConfigMaps updated by the kubelet.
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

	current  atomic.Pointer[Objects] // in use
	tree     *tree                   // nil before Open
	files    []*file                 // of current
	errs     []error                 // of the last look
	twice    []error                 // of current
	reported map[string]bool         // errors that are in the log
}

// Open reads the manifests, and returns an error if one of Paths can't be read: so a caller finds a mistake before it
// changes anything. Run continues with what was read. Without Run, a Source that was opened must not be used again.
func (s *Source) Open() (err error) {
	if len(s.Paths) == 0 {
		return errors.New("read manifests: no path given")
	}
	tree := newTree(s.Paths, false)
	if s.errs, err = tree.refresh(); err != nil {
		return err
	}
	s.tree = tree
	s.current.Store(new(Objects))
	return nil
}

// Locate is [Objects.Locate] for the objects in use. It may be called at any time, and returns "" before they are read.
func (s *Source) Locate(p model.Problem) string {
	return s.current.Load().Locate(p)
}

// Run writes the manifests into the state, calls Complete, and then writes differences until ctx ends. It calls Open
// unless that was called; then it may return an error. It logs errors in manifests once.
func (s *Source) Run(ctx context.Context, state *reconcile.State) error {
	if s.tree == nil {
		if err := s.Open(); err != nil {
			return err
		}
	}
	s.update(state)
	state.Complete()
	s.Log.Info("manifests read", slog.Int("files", len(s.tree.files)), slog.Int("objects", s.current.Load().Len()))
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookPeriod):
		}
		s.errs, _ = s.tree.refresh()
		s.update(state)
	}
}

// update writes the objects in effect that are not in the state.
func (s *Source) update(state *reconcile.State) {
	old := s.current.Load()
	next := old
	if !slices.Equal(s.tree.files, s.files) {
		s.files = s.tree.files
		next, s.twice = merge(s.files)
		s.current.Store(next)
	}
	s.say(append(slices.Clip(s.errs), s.twice...))
	if text := next.Unread(); text != "" && text != old.Unread() {
		s.Log.Warn(text)
	}
	set, gone := differences(old, next)
	if len(set)+len(gone) == 0 {
		return
	}
	var change reconcile.Change
	for _, o := range slices.Concat(set, gone) {
		switch o.ref.Kind {
		case "Service":
			change.Services++
		case "EndpointSlice":
			change.EndpointSlices++
		}
	}
	state.Update(change, func(b *model.Builder) {
		for _, o := range gone {
			o.remove(b)
		}
		for _, o := range set {
			o.set(b)
		}
	})
}

// differences returns the objects that are new or changed, and those that are gone.
func differences(old, next *Objects) (set, gone []*object) {
	if old == next {
		return nil, nil
	}
	for _, o := range old.list {
		if next.byRef[o.ref] == nil {
			gone = append(gone, o)
		}
	}
	for _, o := range next.list {
		// It is the same pointer if its file has not changed.
		if was := old.byRef[o.ref]; was != o && (was == nil || !reflect.DeepEqual(was.value, o.value)) {
			set = append(set, o)
		}
	}
	return set, gone
}

// say logs errors that are new or gone.
func (s *Source) say(errs []error) {
	before := s.reported
	s.reported = make(map[string]bool)
	for _, e := range errs {
		text := e.Error()
		s.reported[text] = true
		if !before[text] {
			s.Log.Error("error in manifest; valid objects stay in effect", slog.String("err", text))
		}
	}
	for text := range before {
		if !s.reported[text] {
			s.Log.Info("error in manifest is corrected", slog.String("err", text))
		}
	}
}
