package config

import (
	"context"
	"os"
	"slices"
	"time"
)

// lookPeriod is the time between two looks at the files.
const lookPeriod = time.Second

// Follow calls changed with a new configuration, or the error, each time that the files have changed, but not since the
// look before: they may be half written. It returns when ctx ends, or at once if there is no file.
//
// Files may be written in place, replaced, or be part of a ConfigMap.
func (c *Config) Follow(ctx context.Context, changed func(*Config, error)) {
	loaded, seen := c.files, c.files
	for len(loaded) > 0 {
		var now []file
		for _, f := range loaded {
			data, _ := os.ReadFile(f.path) // after an error, Load returns it
			now = append(now, file{f.path, string(data)})
		}
		if slices.Equal(now, seen) && !slices.Equal(now, loaded) {
			loaded = now
			changed(Load(c.flags))
		}
		seen = now
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookPeriod):
		}
	}
}
