package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/life"
)

// runLife does the steps with a proxy whose names fit, also after one has failed, and prints a row of a table for each.
func runLife(ctx context.Context, c *kube.Cluster, proxy, before, only string) error {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("--steps: %w", err)
	}
	r, err := life.New(ctx, c, proxy, before)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range life.Steps(proxy) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !wanted.MatchString(s.Name) {
			continue
		}
		result, err := r.Step(ctx, s)
		if err != nil {
			r.Log.Error("no result", slog.String("step", s.Name), slog.Any("err", err))
			errs = append(errs, fmt.Errorf("%s: %w", s.Name, err))
			continue
		}
		fmt.Print(result)
		errs = append(errs, result.Err())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("life of a cluster with %s:\n%w", r.Proxy, err)
	}
	return nil
}
