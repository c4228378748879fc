package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/life"
)

const lifeLong = `life takes a running cluster through what happens to clusters: upgrades, exchange of the proxy
as FROM-KUBE-PROXY.md describes it, drains, an API server that is away, and more. Meanwhile clients
connect to Services; those that fail are counted. Run it in the root of the repository.

  cluster life --before v1.2                       the steps of vmapd
  cluster life --proxy kube-proxy:nftables         the same, to compare with
  cluster life table > cmd/vmapd/deploy/LIFE.md`

// lifeResults is the folder of the results, a file for each step and proxy.
const lifeResults = "bin/life"

// lifeOptions are the values of life's own flags.
type lifeOptions struct {
	proxy, before, only string
	list                bool
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
	flags := c.Flags()
	flags.StringVar(&l.proxy, "proxy", life.VMAPD, "the proxy that the steps are about: vmapd, kube-proxy:nftables or kube-proxy:iptables")
	flags.StringVar(&l.before, "before", "HEAD^", "commit or tag of the vmapd to upgrade from")
	flags.StringVar(&l.only, "steps", "", "regular expression of the steps' names (default all)")
	flags.BoolVar(&l.list, "list", false, "print the steps' names only")
	o.addProxyFlags(c)
	c.AddCommand(&cobra.Command{
		Use:   "table",
		Short: "Print the results as a page",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			results, err := life.Results(lifeResults)
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
	if l.list {
		for _, s := range life.Steps(l.proxy) {
			fmt.Fprintln(stdout, s.Name)
		}
		return nil
	}
	c, err := o.open(logTo(stderr))
	if err != nil {
		return err
	}
	return l.steps(ctx, c, o.deploy, stdout)
}

// steps does the steps in a cluster, also after one has failed.
func (l *lifeOptions) steps(ctx context.Context, c *kube.Cluster, deploy string, stdout io.Writer) error {
	wanted, err := regexp.Compile(l.only)
	if err != nil {
		return fmt.Errorf("--steps: %w", err)
	}
	r, err := life.New(c, l.proxy, deploy, lifeResults)
	if err != nil {
		return err
	}
	if err := r.Prepare(ctx, l.before); err != nil {
		return err
	}
	var errs []error
	for _, s := range life.Steps(l.proxy) {
		if !wanted.MatchString(s.Name) || ctx.Err() != nil {
			continue
		}
		result, err := r.Step(ctx, s)
		if err != nil {
			c.Log.Error("no result", slog.String("step", s.Name), slog.Any("err", err))
			errs = append(errs, fmt.Errorf("%s: %w", s.Name, err))
			continue
		}
		fmt.Fprintf(stdout, "%v", result)
		errs = append(errs, result.Err())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("life of a cluster with %s:\n%w", l.proxy, err)
	}
	return ctx.Err()
}

// runLifeSuite does the steps with each proxy. Those of vmapd are with the backend nftables; the
// other one takes part in the steps that come from kube-proxy in mode iptables.
func runLifeSuite(ctx context.Context, o *options, c *kube.Cluster, proxies []kube.Proxy) error {
	var errs []error
	for _, p := range proxies {
		l := lifeOptions{proxy: p.String(), before: "HEAD^"}
		if p.Program == kube.Vmapd {
			if p.Mode == "iptables" {
				continue
			}
			l.proxy = life.VMAPD
		}
		errs = append(errs, l.steps(ctx, c, o.deploy, os.Stdout))
	}
	return errors.Join(errs...)
}
