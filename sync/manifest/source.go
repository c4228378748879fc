package manifest

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/kube"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// lookPeriod is the time between two looks at the files.
const lookPeriod = 500 * time.Millisecond

// Source writes the manifests in files and folders into a [reconcile.State], and follows changes of them within a
// second: files written in place or replaced, folders created and removed, and ConfigMaps updated by the kubelet.
//
// Errors never remove objects:
//
//   - While a file is invalid, unreadable or has become empty, or one of the given paths is missing, all objects stay
//     that were there before. What is valid takes effect.
//   - If a file vanishes from a folder, its objects are removed.
//
// A file should be replaced by renaming: half of it may be a valid manifest.
type Source struct {
	paths   []string
	log     *slog.Logger
	seen    []place // at the last look
	files   []*file
	current atomic.Pointer[Objects] // in the state
	said    reconcile.LastError
}

// Open reads files and folders as [Load] does, the standard input once, and returns an error if one can't be read: so a
// caller finds a mistake before it changes anything.
func Open(paths []string, log *slog.Logger) (*Source, error) {
	seen, files, err := load(paths)
	if err != nil {
		return nil, err
	}
	s := &Source{paths: paths, log: log, seen: seen, files: files}
	s.current.Store(new(Objects))
	return s, nil
}

// Located is [Objects.Located] for the objects in use. It may be called at any time.
func (s *Source) Located(p model.Problem) string { return s.current.Load().Located(p) }

// Run writes the manifests into the state, calls Complete, and then writes what changes until ctx ends. It logs errors
// in manifests once, and all that are left after one is corrected.
func (s *Source) Run(ctx context.Context, state *reconcile.State) {
	s.update(state)
	state.Complete()
	s.log.Info("manifests read", slog.Int("files", len(s.files)), slog.Int("objects", s.current.Load().Len()))
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookPeriod):
		}
		before := s.seen
		if s.seen = look(s.paths); !slices.Equal(s.seen, before) {
			continue // a file may be half written
		}
		if files := read(s.seen, s.files); !slices.Equal(files, s.files) {
			s.files = files
			s.update(state)
		}
	}
}

// update writes the objects of the files into the state.
func (s *Source) update(state *reconcile.State) {
	old, next := s.current.Load(), merge(s.files)
	if len(next.errs) > 0 {
		next.keep(old)
	}
	s.current.Store(next)
	if s.said.Differs(errors.Join(next.errs...)) {
		for _, err := range next.errs {
			s.log.Error("error in manifest; valid objects stay in effect", slog.Any("err", err))
		}
		if len(next.errs) == 0 {
			s.log.Info("all errors in manifests are corrected")
		}
	}
	if text := next.Unread(); text != "" && text != old.Unread() {
		s.log.Warn(text)
	}
	state.Update(reconcile.Change{}, func(b *model.Builder) {
		for ref := range old.byRef {
			if next.byRef[ref] == nil {
				kube.Delete(b, ref)
			}
		}
		next.ApplyTo(b)
	})
}
