package files

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/vmapd/vmapd/sync/logonce"
)

const (
	// quiet is how long there must be no change before [Follower.Next] returns: it is
	// longer than an editor's or the kubelet's sequence of renames.
	quiet = 50 * time.Millisecond
	// longest is how long a change waits at most while others follow.
	longest = 250 * time.Millisecond
	// pollPeriod is the time between two looks at folders that inotify can't watch
	// (fs.inotify.max_user_watches and max_user_instances).
	pollPeriod = 2 * time.Second
)

// Follower waits for changes in a set of folders. It is for one goroutine.
type Follower struct {
	log     *slog.Logger
	watcher *fsnotify.Watcher // nil if the system has no inotify instance left
	wanted  map[string]bool   // the folders added since Next returned
	broken  error             // why one of them can't be watched
	said    logonce.Error     // the last broken in the log
}

// New returns a Follower of no folder. Close it.
func New(log *slog.Logger) *Follower {
	f := &Follower{log: log, wanted: make(map[string]bool)}
	f.watcher, f.broken = fsnotify.NewWatcher()
	return f
}

// Close ends the watches.
func (f *Follower) Close() {
	if f.watcher != nil {
		// Closing an inotify descriptor loses nothing.
		_ = f.watcher.Close()
	}
}

// Add adds a folder to those that the next call of Next watches. A folder that doesn't
// exist can't be watched; that of its parent tells when it appears.
func (f *Follower) Add(dir string) {
	dir = filepath.Clean(dir)
	if f.wanted[dir] || f.watcher == nil {
		return
	}
	f.wanted[dir] = true
	// Also if it is watched already: it may have been replaced by another of that name.
	if err := f.watcher.Add(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.broken = err
	}
}

// Next waits until something may have changed in the folders added since it returned
// last, and forgets all others. It also returns after the period, unless that is 0. It
// returns false when ctx has ended.
func (f *Follower) Next(ctx context.Context, period time.Duration) bool {
	var events <-chan fsnotify.Event
	var errs <-chan error
	if f.watcher != nil {
		events, errs = f.watcher.Events, f.watcher.Errors
		for _, dir := range f.watcher.WatchList() {
			if !f.wanted[dir] {
				// The folder may be gone, and its watch with it.
				_ = f.watcher.Remove(dir)
			}
		}
	}
	if f.broken != nil && (period == 0 || period > pollPeriod) {
		period = pollPeriod
	}
	f.logBroken(ctx)
	var poll, last, due <-chan time.Time
	if period > 0 {
		poll = time.After(period)
	}
	for changed := false; !changed; {
		select {
		case <-ctx.Done():
			return false
		case <-events:
			due = time.After(quiet)
		case err := <-errs: // mostly an overflow of the queue: some event is lost
			f.log.LogAttrs(ctx, slog.LevelDebug, "lost events of files; reading all of them again", slog.Any("err", err))
			due = time.After(quiet)
		case <-due:
			changed = true
		case <-last:
			changed = true
		case <-poll:
			changed = true
		}
		if last == nil {
			last = time.After(longest)
		}
	}
	clear(f.wanted)
	if f.watcher != nil {
		f.broken = nil
	}
	return true
}

// logBroken logs once that changes are noticed late.
func (f *Follower) logBroken(ctx context.Context) {
	if f.said.Differs(f.broken) && f.broken != nil {
		f.log.LogAttrs(ctx, slog.LevelWarn, "cannot watch folder; polling", slog.Any("err", f.broken), slog.Duration("period", pollPeriod))
	}
}
