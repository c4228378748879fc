package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"slices"

	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/life"
)

const lifeLong = `life takes a running cluster through what happens to clusters: upgrades, exchange of the proxy
as docs/from-kube-proxy.md describes it, drains, an API server that is away, and more. Meanwhile clients
connect to Services; those that fail are counted. Run it in the root of the repository.

  cluster life --before v1.2                       the steps of vmapd
  cluster life --proxy kube-proxy:nftables         the same, to compare with

Each step prints a row of a table.`

func newLifeCommand(dir *string) *cobra.Command {
	var proxy, before, only string
	c := &cobra.Command{
		Use:   "life",
		Short: "Take a running cluster through upgrades and troubles, and count connections",
		Long:  lifeLong,
		Args:  cobra.NoArgs,
		RunE: with(dir, func(cmd *cobra.Command, c *kube.Cluster, _ []string) error {
			wanted, err := regexp.Compile(only)
			if err != nil {
				return fmt.Errorf("--steps: %w", err)
			}
			steps := slices.DeleteFunc(life.Steps(proxy), func(s life.Step) bool { return !wanted.MatchString(s.Name) })
			r, err := life.New(cmd.Context(), c, proxy, before)
			if err != nil {
				return err
			}
			return takeSteps(cmd.Context(), r, steps, cmd.OutOrStdout())
		}),
	}
	flags := c.Flags()
	flags.StringVar(&proxy, "proxy", life.VMAPD, "proxy of the steps: vmapd, kube-proxy:nftables or kube-proxy:iptables")
	flags.StringVar(&before, "before", "HEAD^", "commit or tag of the vmapd to upgrade from")
	flags.StringVar(&only, "steps", "", "regular expression of the steps' names (default all)")
	return c
}

// takeSteps does the steps, also after one has failed.
func takeSteps(ctx context.Context, r *life.Run, steps []life.Step, stdout io.Writer) error {
	var errs []error
	for _, s := range steps {
		if ctx.Err() != nil {
			break
		}
		result, err := r.Step(ctx, s)
		if err != nil {
			r.Log.Error("no result", slog.String("step", s.Name), slog.Any("err", err))
			errs = append(errs, fmt.Errorf("%s: %w", s.Name, err))
			continue
		}
		fmt.Fprintf(stdout, "%v", result)
		errs = append(errs, result.Err())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("life of a cluster with %s:\n%w", r.Proxy, err)
	}
	return ctx.Err()
}
