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

const demoLong = `Demo creates a client, a node and three pods in network namespaces. vmapd runs in the
node and reads manifests. Demo makes real connections through a cluster IP, a node
port, an external IP and a load balancer's address, over IPv4 and IPv6, TCP and UDP.
Then it replaces a pod under load.

It prints which pods answered. The exit code is 1 if a result was wrong. It removes
everything at the end, also when it is interrupted. It needs root or user namespaces.`

func newDemoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Demonstrate vmapd in network namespaces",
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
			// The running program, even if its file has been replaced.
			d := demo.Demo{Out: cmd.OutOrStdout(), Program: []string{"/proc/self/exe"}}
			err = d.Run(cmd.Context())
			switch {
			case errors.Is(err, demo.ErrFailed):
				return exitError(1)
			case errors.Is(err, context.Canceled):
				fmt.Fprintln(cmd.ErrOrStderr(), "vmapd: interrupted; everything was removed")
				const bySignal = 128 + int(syscall.SIGINT) // as in a shell
				return exitError(bySignal)
			}
			return err
		},
	}
}
