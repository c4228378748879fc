package cli

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/vmapd/vmapd/cmd/vmapd/docs"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/leftovers"
)

func newCleanupCommand() *cobra.Command {
	var flags config.Flags
	var keepKubeProxy, yes bool
	c := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove everything that vmapd or kube-proxy left on this node",
		Long:  docs.Help("cleanup"),
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
