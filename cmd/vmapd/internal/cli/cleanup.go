package cli

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/leftovers"
)

const cleanupLong = `Cleanup removes everything that vmapd with any backend, and kube-proxy in any mode,
left on this node: tables of nftables, chains of iptables, dummy devices with IPVS's
virtual servers, and ipsets. The kubelet's own chains stay. Stop the daemon first.
New connections to Services fail; established ones continue if other rules on the node
use connection tracking.

With --keep-kube-proxy, it removes only what vmapd left, for a node on which kube-proxy
runs again. Before kube-proxy has written its rules, it removes nothing, and the exit
code is 1. If kube-proxy's dummy device exists, the virtual servers stay, too.

Where a proxy runs, it asks first; without a terminal it refuses. It needs CAP_NET_ADMIN
and, where the node has tables of iptables-legacy, its programs. If something is left at
the end, or could not be examined, it says so, and the exit code is 1.`

func newCleanupCommand() *cobra.Command {
	var flags config.Flags
	var keepKubeProxy, yes bool
	c := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove everything that vmapd or kube-proxy left on this node",
		Long:  cleanupLong,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conf, err := config.Load(&flags)
			if err != nil {
				return err
			}
			warn(&flags, conf, cmd.ErrOrStderr())
			if keepKubeProxy {
				return leftovers.RemoveOwn(conf.IPVS())
			}
			running := leftovers.RunningProxy(conf.KubeProxy.MetricsBindAddress)
			if running != "" && !yes && !confirmed(cmd, running) {
				return fmt.Errorf("%s, so nothing was removed: end it first, or use --keep-kube-proxy for vmapd's rules alone, "+
					"or --yes for all rules", running)
			}
			return leftovers.Remove(conf.IPVS())
		},
	}
	flags.AddSome(c.Flags(), "config", "ipvs-exclude-cidrs")
	c.Flags().BoolVar(&keepKubeProxy, "keep-kube-proxy", false, "remove only vmapd's rules, none of kube-proxy's")
	c.Flags().BoolVar(&yes, "yes", false, "remove the rules of a proxy that runs, too, without a question")
	return c
}

// confirmed asks whether the rules of a proxy that runs are to be removed. Without a terminal, nobody is asked.
func confirmed(cmd *cobra.Command, running string) bool {
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return false
	}
	cmd.PrintErrf("%s: without its rules, connections to Services fail. Remove them? [y/N] ", running)
	answer, _ := bufio.NewReader(in).ReadString('\n')
	return strings.EqualFold(strings.TrimSpace(answer), "y")
}
