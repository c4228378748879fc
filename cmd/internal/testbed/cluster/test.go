package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
)

func newTestCommand(o *options) *cobra.Command {
	var proxies []string
	c := &cobra.Command{
		Use:   "test",
		Short: "Start a cluster, run e2e and life in it with each proxy, and end it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := o.parseProxies(proxies)
			if err != nil {
				return err
			}
			return o.test(cmd.Context(), logTo(cmd.ErrOrStderr()), all)
		},
	}
	o.addUpFlags(c)
	c.Flags().StringSliceVar(&proxies, "proxies", []string{"vmapd", "vmapd:iptables", "kube-proxy", "kube-proxy:iptables"}, "the Service proxies to run them with")
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

// test runs e2e and life, also after the first has failed, and ends the cluster.
func (o *options) test(ctx context.Context, log *slog.Logger, proxies []kube.Proxy) (err error) {
	c, err := o.new(log)
	if err != nil {
		return err
	}
	// All that is missing is said at once, and not after an hour. etcd's clients are packages of Debian's, too.
	needed := imagePrograms(testsProgram)
	for _, program := range []string{"etcdctl", "etcdutl"} {
		if _, err := exec.LookPath(program); err != nil {
			needed = append(needed, program)
		}
	}
	if missing := kube.Missing(c.KubeDir, needed...); len(missing) > 0 {
		return &kube.MissingError{Dir: c.KubeDir, Programs: missing}
	}
	if err := up(ctx, c, proxies[0]); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Down()) }()
	if err = runE2ESuite(ctx, c, proxies); err != nil {
		err = fmt.Errorf("e2e: %w", err)
	}
	if lifeErr := runLifeSuite(ctx, o, c, proxies); lifeErr != nil && ctx.Err() == nil {
		err = errors.Join(err, fmt.Errorf("life: %w", lifeErr))
	}
	return err
}
