// Command vmapd programs Kubernetes Services on one node: it replaces kube-proxy.
//
// Without a subcommand it is the daemon. The subcommands render and explain inspect, cleanup
// removes, and demo demonstrates.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is main without globals. It returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var code exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintf(stderr, "vmapd: %v\n", err)
	return 1
}

// exitError is an error that was already printed.
type exitError int

func (c exitError) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

const rootLong = `vmapd programs Kubernetes Services on one node, in place of kube-proxy.

It watches Services and EndpointSlices, in a cluster or in files, and keeps the
nftables tables "ip vmapd" and "ip6 vmapd" in line with them. When it exits, the
rules stay in the kernel and keep working; the next start takes them over.

Without a subcommand it is the daemon:

  vmapd                               in a pod of the cluster
  vmapd --kubeconfig FILE             with these credentials
  vmapd --config FILE                 with kube-proxy's configuration file
  vmapd --from PATH                   without a cluster: manifests in files

It needs CAP_NET_ADMIN and Linux 5.9 or newer with nftables, but no nft command. If
the kernel lacks a feature, it uses IPVS or iptables.`

func newRootCommand() *cobra.Command {
	var d daemon
	root := &cobra.Command{
		Use:           "vmapd",
		Short:         "A Kubernetes Service proxy on nftables maps",
		Long:          rootLong,
		Args:          cobra.NoArgs,
		Version:       version(), // not printed by a template, which would keep all methods of all types in the binary
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return d.run(cmd.Context(), cmd.ErrOrStderr())
		},
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	d.AddFlags(root.Flags())
	root.AddCommand(newRenderCommand(), newExplainCommand(), newCleanupCommand(), newDemoCommand(), newWaitCommand())
	return root
}
