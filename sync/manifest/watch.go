package manifest

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// quiet is how long nothing must have changed before the change is read: it
	// lasts longer than an editor's or kubelet's sequence of renames.
	quiet = 50 * time.Millisecond
	// longest is how long a change waits at most while others keep coming.
	longest = 250 * time.Millisecond
	// pollPeriod is how often to look where inotify can't tell: a folder that is
	// missing, or no watches left (fs.inotify.max_user_watches and _instances).
	pollPeriod = 2 * time.Second
)

// watcher waits for changes in a set of folders. Files are not watched themselves,
// as most of them are replaced rather than written.
type watcher struct {
	log *slog.Logger
	fs  *fsnotify.Watcher // nil if the system has none left

	wanted map[string]bool // folders that were added since begin
	broken bool            // one of them can't be watched
	said   bool            // that has been logged
	poll   bool            // look again after pollPeriod in any case
}

func newWatcher(log *slog.Logger) *watcher {
	w := &watcher{log: log}
	var err error
	if w.fs, err = fsnotify.NewWatcher(); err != nil {
		w.fs = nil
		w.polling(err)
	}
	return w
}

func (w *watcher) close() {
	if w.fs != nil {
		// Closing an inotify descriptor loses nothing.
		_ = w.fs.Close()
	}
}

// polling says once that changes will be noticed late.
func (w *watcher) polling(err error) {
	if w.said {
		return
	}
	w.said = true
	w.log.LogAttrs(context.Background(), slog.LevelWarn, "folder can't be watched; looking for changes from time to time",
		slog.Any("err", err), slog.Duration("period", pollPeriod))
}

// begin starts a new set of folders.
func (w *watcher) begin() { w.wanted, w.broken = make(map[string]bool), false }

// add adds a folder to the set. It does so again for one that is watched already,
// which may have been replaced by another of the same name.
func (w *watcher) add(dir string) {
	dir = filepath.Clean(dir)
	if w.wanted[dir] || w.fs == nil {
		return
	}
	w.wanted[dir] = true
	if err := w.fs.Add(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.broken = true
		w.polling(err)
	}
}

// end completes the set. If something is wrong with the tree, a path that is
// missing may come back in a way that no watch tells of.
func (w *watcher) end(wrong bool) {
	w.poll = wrong || w.broken || w.fs == nil
	if w.fs == nil {
		return
	}
	for _, dir := range w.fs.WatchList() {
		if !w.wanted[dir] {
			// It may be gone, and its watch with it.
			_ = w.fs.Remove(dir)
		}
	}
	if !w.broken {
		w.said = false
	}
}

// next waits for changes and returns the base names they touched, or false when ctx
// has ended.
func (w *watcher) next(ctx context.Context) (map[string]bool, bool) {
	var events <-chan fsnotify.Event
	var errs <-chan error
	if w.fs != nil {
		events, errs = w.fs.Events, w.fs.Errors
	}
	touched := make(map[string]bool)
	var due, last <-chan time.Time // of the quiet and the longest period
	var poll <-chan time.Time
	if w.poll {
		poll = time.After(pollPeriod)
	}
	for {
		select {
		case <-ctx.Done():
			return nil, false
		case e := <-events:
			touched[filepath.Base(e.Name)] = true
			due = time.After(quiet)
		case err := <-errs:
			// Mostly the queue overflowed: some event is lost.
			w.log.LogAttrs(ctx, slog.LevelWarn, "watching folders; reading all of them again", slog.Any("err", err))
			touched[everything] = true
			due = time.After(quiet)
		case <-due:
			return touched, true
		case <-last:
			return touched, true
		case <-poll:
			return touched, true
		}
		if last == nil {
			last = time.After(longest)
		}
	}
}

// everything in a set of base names stands for all of them; no file is called so.
const everything = "/"
