package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
)

// suite is a group of tests that need a running cluster. It chooses the proxy by InstallProxy, and
// leaves the cluster as it found it, except for the proxy.
type suite struct {
	name string
	run  func(ctx context.Context, o *options, c *kube.Cluster, proxies []kube.Proxy) error
}

// suites are all there are, in the order in which the command test runs them.
func suites() []suite { return []suite{{"e2e", runE2ESuite}, {"life", runLifeSuite}} }

func newTestCommand(o *options) *cobra.Command {
	var names []string
	for _, s := range suites() {
		names = append(names, s.name)
	}
	var chosen, proxies []string
	var keep bool
	c := &cobra.Command{
		Use:   "test",
		Short: "Start a cluster, run all tests in it, and end it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range chosen {
				if !slices.Contains(names, name) {
					return fmt.Errorf("--suites: there is no %q; want some of %s", name, strings.Join(names, ", "))
				}
			}
			all, err := o.parseProxies(proxies)
			if err != nil {
				return err
			}
			return o.test(cmd.Context(), logTo(cmd.ErrOrStderr()), chosen, all, keep)
		},
	}
	o.addUpFlags(c)
	c.Flags().StringSliceVar(&chosen, "suites", names, "the tests to run")
	c.Flags().StringSliceVar(&proxies, "proxies", []string{"vmapd", "vmapd:iptables", "kube-proxy", "kube-proxy:iptables"}, "the Service proxies to run them with")
	c.Flags().BoolVar(&keep, "keep", false, "let the cluster run afterwards")
	return c
}

func (o *options) parseProxies(texts []string) ([]kube.Proxy, error) {
	var all []kube.Proxy
	for _, text := range texts {
		p, err := kube.ParseProxy(text)
		if err != nil {
			return nil, fmt.Errorf("--proxies: %w", err)
		}
		p.Deploy = o.deploy
		all = append(all, p)
	}
	if len(all) == 0 {
		return nil, errors.New("--proxies: want at least one")
	}
	return all, nil
}

// neededFor returns the programs that suites need. Those of etcd, which are packages of Debian's, too, may be elsewhere.
func neededFor(suites []string) []string {
	all := imagePrograms(testsProgram)
	if slices.Contains(suites, "life") {
		for _, program := range []string{"etcdctl", "etcdutl"} {
			if _, err := exec.LookPath(program); err != nil {
				all = append(all, program)
			}
		}
	}
	return all
}

// test runs the chosen suites, also after one has failed, and ends the cluster.
func (o *options) test(ctx context.Context, log *slog.Logger, chosen []string, proxies []kube.Proxy, keep bool) (err error) {
	c, err := o.new(log)
	if err != nil {
		return err
	}
	c.Attached = !keep
	// All that is missing is said at once, and not after an hour.
	if missing := kube.Missing(c.KubeDir, neededFor(chosen)...); len(missing) > 0 {
		return &kube.MissingError{Dir: c.KubeDir, Programs: missing}
	}
	if err := up(ctx, c, proxies[0], true); err != nil {
		return err
	}
	if !keep {
		defer func() { err = errors.Join(err, c.Down()) }()
	}
	var errs []error
	for _, s := range suites() {
		if !slices.Contains(chosen, s.name) || ctx.Err() != nil {
			continue
		}
		if err := s.run(ctx, o, c, proxies); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	return errors.Join(errs...)
}
