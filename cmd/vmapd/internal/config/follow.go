package config

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/vmapd/vmapd/sync/reconcile"
)

// lookPeriod is the time between two looks at the files.
const lookPeriod = time.Second

// Follow calls changed with a new configuration each time that the files have changed. If they have become invalid, it
// calls changed once with the error. It returns when ctx ends, or at once if there is no file.
//
// Files may be written in place, replaced, or be part of a ConfigMap.
func (c *Config) Follow(ctx context.Context, changed func(*Config, error)) {
	if len(c.files) == 0 {
		return
	}
	f := follower{flags: c.flags, files: c.files}
	for {
		f.look(changed) // the first look finds a change since the files were loaded
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookPeriod):
		}
	}
}

// follower remembers the contents of the files and the last error.
type follower struct {
	flags *Flags
	files []file // that were loaded
	seen  []file // as they were at the last look
	last  reconcile.LastError
}

// look loads the files again if they have changed, but not since the last look: they may be half written.
func (f *follower) look(changed func(*Config, error)) {
	var now []file
	for _, loaded := range f.files {
		data, _ := os.ReadFile(loaded.path) // after an error, Load returns it
		now = append(now, file{loaded.path, string(data)})
	}
	settled := slices.Equal(now, f.seen)
	f.seen = now
	if !settled || slices.Equal(now, f.files) {
		return
	}
	f.files = now
	c, err := Load(f.flags)
	switch differs := f.last.Differs(err); {
	case err == nil:
		f.files = c.files
		changed(c, nil)
	case differs:
		changed(nil, err)
	}
}
