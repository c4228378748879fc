package config

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// quiet is how long nothing must have changed before a file is read: longer than an
	// editor's or kubelet's sequence of renames.
	quiet = 100 * time.Millisecond
	// lookPeriod is how often to look without being told: a folder may be replaced, or
	// there may be no watches left.
	lookPeriod = 10 * time.Second
)

// Follow calls changed with a new configuration each time that the files have changed, or
// with the error if they are no good any more, which it says once; the configuration in
// force then stays so. It returns when ctx ends, or at once if there is no file.
//
// Files may be written in place, replaced, or be part of a ConfigMap.
func (c *Config) Follow(ctx context.Context, log *slog.Logger, changed func(*Config, error)) {
	if len(c.files) == 0 {
		return
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		log.LogAttrs(ctx, slog.LevelWarn, "changes of the configuration are noticed late", slog.Any("err", err), slog.Duration("period", lookPeriod))
		w = &fsnotify.Watcher{} // whose channels never say anything
	} else {
		defer func() { _ = w.Close() }()
	}
	f := follower{flags: c.flags, files: slices.Clone(c.files)}
	look := time.NewTicker(lookPeriod)
	defer look.Stop()
	due := time.NewTimer(0) // something may have changed since the files were read
	defer due.Stop()
	for {
		if err == nil {
			f.watch(w)
		}
		select {
		case <-ctx.Done():
			return
		case <-w.Events:
			due.Reset(quiet)
			continue
		case err := <-w.Errors: // mostly, events were lost
			log.LogAttrs(ctx, slog.LevelDebug, "watching the configuration", slog.Any("err", err))
			due.Reset(quiet)
			continue
		case <-due.C:
		case <-look.C:
		}
		if !f.look(changed) {
			due.Reset(quiet)
		}
	}
}

// follower remembers what the files were, and what was said about them.
type follower struct {
	flags *Flags
	files []file // that were loaded
	seen  []file // as they were at the last look
	bad   string // the last error
}

// watch watches the folders of the files, and those that links lead to.
func (f *follower) watch(w *fsnotify.Watcher) {
	for _, file := range f.files {
		// What can't be watched is looked at from time to time.
		_ = w.Add(filepath.Dir(file.path))
		if target, err := filepath.EvalSymlinks(file.path); err == nil {
			_ = w.Add(filepath.Dir(target))
		}
	}
}

// look loads the files again if they are not what they were. It returns false if they are
// being written: at the next look they may be the same.
func (f *follower) look(changed func(*Config, error)) (settled bool) {
	now := make([]file, len(f.files))
	for i, loaded := range f.files {
		now[i].path = loaded.path
		if data, err := readFile(loaded.path); err == nil {
			now[i].data = data
		}
	}
	before := f.seen
	f.seen = now
	switch {
	case slices.EqualFunc(now, f.files, same):
		return true
	case !slices.EqualFunc(now, before, same):
		return false
	}
	f.files = now
	c, err := Load(f.flags)
	switch {
	case err == nil:
		f.files, f.bad = slices.Clone(c.files), ""
		changed(c, nil)
	case err.Error() != f.bad:
		f.bad = err.Error()
		changed(nil, err)
	}
	return true
}

func same(a, b file) bool { return a.path == b.path && bytes.Equal(a.data, b.data) }
