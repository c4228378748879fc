package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/scale/cluster"
)

// profileProcessor takes a CPU profile of the daemon, which may still be starting. The channel
// receives when the profile is written or has failed, or at once if no profiles are wanted.
func (d *daemon) profileProcessor(ctx context.Context, o *options, s cluster.Shape, when string) <-chan error {
	done := make(chan error, 1)
	if o.profiles == "" {
		done <- nil
		return done
	}
	go func() {
		for {
			err := d.profile(ctx, o, fmt.Sprintf("profile?seconds=%.0f", o.profiling.Seconds()), profileName(s, when, "cpu"))
			if !errors.Is(err, syscall.ECONNREFUSED) {
				done <- err
				return
			}
			if err := pause(ctx, time.Millisecond); err != nil {
				done <- err
				return
			}
		}
	}()
	return done
}

// profileMemory writes profiles of the daemon's heap after a garbage collection, and of all its
// allocations.
func (d *daemon) profileMemory(ctx context.Context, o *options, s cluster.Shape, when string) error {
	if o.profiles == "" {
		return nil
	}
	return d.profile(ctx, o, "heap?gc=1", profileName(s, when, "heap"))
}

func profileName(s cluster.Shape, when, kind string) string {
	return strings.ReplaceAll(s.String(), ":", "-") + "-" + when + "-" + kind + ".pprof"
}

func (d *daemon) profile(ctx context.Context, o *options, what, file string) error {
	body, err := d.get(ctx, "/debug/pprof/"+what)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.profiles, 0o755); err != nil {
		return fmt.Errorf("write a profile: %w", err)
	}
	if err := os.WriteFile(filepath.Join(o.profiles, file), body, 0o644); err != nil {
		return fmt.Errorf("write a profile: %w", err)
	}
	return nil
}
