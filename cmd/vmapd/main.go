// Command vmapd programs Kubernetes Services on one node: it replaces kube-proxy.
//
// Without a subcommand it is the daemon. The subcommands show what it does, and why. As kubectl-vmapd, it is a plugin
// of kubectl that runs them in the pods of a cluster.
package main

import "github.com/vmapd/vmapd/cmd/vmapd/internal/cli"

func main() { cli.Main() }
