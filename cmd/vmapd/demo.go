package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/demo"
)

const demoLong = `Demo builds a small world in network namespaces: a client, a node and three pods.
vmapd runs in the node, fed from manifests, and real connections are made through a
cluster IP, a node port, an external IP and a load balancer's address, over IPv4 and
IPv6, TCP and UDP. Then one pod is replaced while connections go on.

It prints who answered. The exit code is 1 if anything was not as it should be.
Nothing stays behind, also when it is interrupted. It runs as root, or as any user
where user namespaces are allowed.`

func newDemoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Show it at work, in a small world of network namespaces",
		Long:  demoLong,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			code, done, err := lab.Reexec()
			if err != nil {
				return fmt.Errorf("demo needs root or user namespaces: %w", err)
			}
			if done {
				if code != 0 {
					return exitError(code)
				}
				return nil
			}
			// The running program, even if its file was replaced since.
			d := demo.Demo{Out: cmd.OutOrStdout(), Program: []string{"/proc/self/exe"}}
			err = d.Run(cmd.Context())
			switch {
			case errors.Is(err, demo.ErrFailed):
				return exitError(1)
			case errors.Is(err, context.Canceled):
				fmt.Fprintln(cmd.ErrOrStderr(), "vmapd: interrupted; everything is taken down")
				const bySignal = 128 + int(syscall.SIGINT) // as a shell has it
				return exitError(bySignal)
			}
			return err
		},
	}
}
