package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/kernel"
)

const cleanupLong = `Cleanup removes what any backend of vmapd, and kube-proxy in any mode, left on this
node: the nftables tables "vmapd" and "kube-proxy" of both families; the chains of
iptables that begin with VMAPD- or are kube-proxy's, with what jumps to them; where there
is a dummy device of either, that and IPVS's virtual servers; and their ipsets. kubelet's
own chains stay.

With --keep-kube-proxy, only what vmapd left is removed, for a node on which kube-proxy runs
again: nothing else takes vmapd's rules away, and they would go on sending connections to the
endpoints of before. Where there is a dummy device of kube-proxy's IPVS mode, the virtual
servers are its own.

Stop the daemon before: while it runs, it owns the tables (from Linux 6.9 on), or would
make all of it again. Connections that were forwarded go on; new ones to a Service no
longer find their way.`

func newCleanupCommand() *cobra.Command {
	var flags config.Flags
	var keepKubeProxy bool
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
				return cleanUpOwn(cmd.Context(), conf)
			}
			return cleanUp(cmd.Context(), conf)
		},
	}
	flags.AddCleanupFlags(c.Flags())
	c.Flags().BoolVar(&keepKubeProxy, "keep-kube-proxy", false, "remove only what vmapd left, and nothing of kube-proxy's")
	return c
}

// cleanUp removes what any proxy left. It goes on after an error: what can be removed is.
func cleanUp(ctx context.Context, c *config.Config) error {
	// The rules before what they look into.
	return errors.Join(removeTables(nft.TableName, kubeProxyTable), host.RemoveRules(ctx, nil), host.RemoveIPVS(ctx, leftAlone(c)))
}

// cleanUpOwn removes what vmapd left. It goes on after an error, too.
func cleanUpOwn(ctx context.Context, c *config.Config) error {
	return errors.Join(removeTables(nft.TableName), host.RemoveOwnRules(ctx), host.RemoveOwnIPVS(ctx, leftAlone(c)))
}

func removeTables(names ...string) error {
	err := kernel.RemoveTables(names...)
	if errors.Is(err, kernel.ErrOwned) {
		return fmt.Errorf("%w (stop the daemon first)", err)
	}
	return err
}

func leftAlone(c *config.Config) ipvs.Options {
	return ipvs.Options{ExcludeCIDRs: c.IPVS().ExcludeCIDRs}
}
