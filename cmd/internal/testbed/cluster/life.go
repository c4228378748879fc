package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/life"
)

const lifeLong = `life takes a running cluster through what happens to clusters: upgrades, exchange of the proxy
as FROM-KUBE-PROXY.md describes it, drains, an API server that is away, and more. Meanwhile clients
connect to Services; those that fail are counted. Run it in the root of the repository.

  cluster life --before v1.2 --results DIR                       the steps of vmapd
  cluster life --proxy kube-proxy:nftables --results DIR         the same, to compare with
  cluster life table --results DIR > cmd/vmapd/deploy/LIFE.md`

// lifeOptions are the values of life's own flags.
type lifeOptions struct {
	proxy, before, steps, results string
	list, missing, prepared       bool
	limit                         time.Duration
}

func newLifeCommand(o *options) *cobra.Command {
	var l lifeOptions
	c := &cobra.Command{
		Use:   "life",
		Short: "Take a running cluster through upgrades and troubles, and count connections",
		Long:  lifeLong,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return l.run(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := c.PersistentFlags()
	flags.StringVar(&l.results, "results", "life-results", "folder of the results, a file for each step and proxy")
	flags = c.Flags()
	flags.StringVar(&l.proxy, "proxy", life.VMAPD, "the proxy that the steps befall: vmapd, kube-proxy:nftables or kube-proxy:iptables")
	flags.StringVar(&l.before, "before", "HEAD^", "commit or tag of the vmapd to upgrade from")
	flags.StringVar(&l.steps, "steps", "", "regular expression of the steps' names (default all)")
	flags.BoolVar(&l.list, "list", false, "print the steps' names only")
	flags.BoolVar(&l.missing, "missing", false, "only the steps without a result")
	flags.BoolVar(&l.prepared, "prepared", false, "use programs and images of the run before")
	flags.DurationVar(&l.limit, "limit", 0, "begin no step after this time (default none)")
	o.addProxyFlags(c)
	c.AddCommand(&cobra.Command{
		Use:   "table",
		Short: "Print the results as a page",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			results, err := life.Results(l.results)
			if err != nil {
				return err
			}
			life.WritePage(cmd.OutOrStdout(), results)
			return nil
		},
	})
	return c
}

func (l *lifeOptions) run(ctx context.Context, o *options, stdout, stderr io.Writer) error {
	wanted, err := regexp.Compile(l.steps)
	if err != nil {
		return fmt.Errorf("--steps: %w", err)
	}
	steps := life.Steps(l.proxy)
	if l.list {
		for _, s := range steps {
			fmt.Fprintln(stdout, s.Name)
		}
		return nil
	}
	c, err := o.open(logTo(stderr))
	if err != nil {
		return err
	}
	r, err := life.New(c, l.proxy, o.deploy, l.results)
	if err != nil {
		return err
	}
	if !l.prepared {
		if err := r.Prepare(ctx, l.before); err != nil {
			return err
		}
	}
	start := time.Now()
	var errs []error
	for _, s := range steps {
		switch {
		case !wanted.MatchString(s.Name), ctx.Err() != nil, l.missing && r.HasResult(s), l.limit > 0 && time.Since(start) > l.limit:
			continue
		}
		result, err := r.Step(ctx, s)
		if err != nil {
			err = fmt.Errorf("%s: %w", s.Name, err)
			fmt.Fprintln(stderr, err)
			errs = append(errs, err)
			continue
		}
		fmt.Fprintf(stdout, "%v", result)
		errs = append(errs, result.Err())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("life of a cluster:\n%w", err)
	}
	return ctx.Err()
}
