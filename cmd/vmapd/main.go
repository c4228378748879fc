// Command vmapd programs Kubernetes Services on one node: it replaces kube-proxy.
//
// Without a subcommand it is the daemon. The subcommands show what it does, and why. As kubectl-vmapd, it is a plugin
// of kubectl that runs them in the pods of a cluster.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	run := cli.Run
	if filepath.Base(os.Args[0]) == cli.PluginName {
		run = cli.RunPlugin
	}
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
