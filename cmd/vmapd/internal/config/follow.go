package config

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/vmapd/vmapd/sync/logonce"
)

const (
	// lookPeriod is the time between two looks at the files.
	lookPeriod = time.Second
	// settlePeriod is how long files must stay the same before they are loaded.
	settlePeriod = 100 * time.Millisecond
)

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
		// The first look finds a change since the files were loaded.
		period := lookPeriod
		if !f.look(changed) {
			period = settlePeriod
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(period):
		}
	}
}

// follower remembers the contents of the files and the last error.
type follower struct {
	flags *Flags
	files []file // that were loaded
	seen  []file // as they were at the last look
	last  logonce.Error
}

// look loads the files again if they have changed. It returns false if they may be half
// written: they are loaded when the next look finds them the same.
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
	switch differs := f.last.Differs(err); {
	case err == nil:
		f.files = c.files
		changed(c, nil)
	case differs:
		changed(nil, err)
	}
	return true
}

func same(a, b file) bool { return a.path == b.path && bytes.Equal(a.data, b.data) }
