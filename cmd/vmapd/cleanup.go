package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/userspace"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/nft/others"
)

const cleanupLong = `Cleanup removes everything that vmapd with any backend, and kube-proxy in any mode,
left on this node: the nftables tables "vmapd" and "kube-proxy" of both families; the
iptables chains that begin with VMAPD-, those of kube-proxy, and the rules that jump to
them; the dummy devices of both with IPVS's virtual servers; and their ipsets. The
kubelet's own chains stay.

With --keep-kube-proxy, it removes only what vmapd left, for a node on which kube-proxy
runs again: otherwise, vmapd's rules would keep sending connections to former endpoints.
Before kube-proxy has written its rules, it removes nothing, and the exit code is 1.
If the dummy device of kube-proxy's IPVS mode exists, the virtual servers stay, too.

It needs CAP_NET_ADMIN and, where the node has tables of iptables, the programs
iptables-nft or iptables-legacy that made them. If something is left at the end, or
could not be looked for, it says so, and the exit code is 1.

Stop the daemon first: while it runs, it owns the tables (from Linux 6.9 on), or would
create everything again. New connections to Services fail. Established ones continue if
other rules on the node use connection tracking; otherwise the kernel ends it.`

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
				return cleanUpOwn(conf)
			}
			return cleanUp(conf)
		},
	}
	flags.AddCleanupFlags(c.Flags())
	c.Flags().BoolVar(&keepKubeProxy, "keep-kube-proxy", false, "remove only what vmapd left, nothing of kube-proxy's")
	return c
}

// cleanUp removes everything that any proxy left. After an error, it continues with the rest,
// unless it lacks the permission for all of it.
func cleanUp(c *config.Config) error {
	err := removeTables(nft.TableName, kubeProxyTable)
	if errors.Is(err, kernel.ErrNotPermitted) {
		return fmt.Errorf("clean up: %w", err)
	}
	r := newFinder(c.IPVS())
	// Rules come before the ipsets that they refer to.
	err = errors.Join(err, r.RemoveRules(), host.RemoveIPVS(c.IPVS()),
		host.RemoveDevice(userspace.DeviceName), others.RemoveStaleTraces())
	return errors.Join(err, stillThere(c, func(f found) found { return f }))
}

// cleanUpOwn is cleanUp for everything that vmapd left, once kube-proxy serves. A node without
// anything of vmapd's needs no kube-proxy.
func cleanUpOwn(c *config.Config) error {
	err := stillThere(c, ofVmapd)
	if err == nil {
		return nil
	}
	if err := kubeProxyServes(c); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	err = removeTables(nft.TableName)
	if errors.Is(err, kernel.ErrNotPermitted) {
		return fmt.Errorf("clean up: %w", err)
	}
	r := newFinder(c.IPVS())
	err = errors.Join(err, r.RemoveOwnRules(), host.RemoveOwnIPVS(c.IPVS()),
		host.RemoveDevice(userspace.DeviceName), others.RemoveStaleTraces())
	return errors.Join(err, stillThere(c, ofVmapd))
}

func ofVmapd(f found) found { return f.of(host.OwnerVmapd) }

// kubeProxyServes returns an error unless kube-proxy has written its rules. A pod of kube-proxy is ready
// a second or more before, and those of IPv6 come after those of IPv4. Without any rule, connections
// fail; without any rule that uses connection tracking, the kernel ends that for the family, and
// translates none that is under way.
func kubeProxyServes(c *config.Config) error {
	r := newFinder(c.IPVS())
	var begun, served [len(model.Families)]bool
	tables := false
	for _, f := range model.Families {
		names, err := others.TableNames(f)
		if err != nil {
			return fmt.Errorf("look for kube-proxy's %v table: %w", f, err)
		}
		if begun[f], served[f], err = r.KubeProxyRules(f); err != nil {
			return fmt.Errorf("look for kube-proxy's %v rules: %w", f, err)
		}
		if slices.Contains(names, kubeProxyTable) { // which it makes with all in it
			tables, served[f] = true, true
		}
	}
	for _, f := range model.Families {
		if served[f] || !begun[f] && slices.Contains(served[:], true) && (!tables || f == model.IPv6 && !withIPv6()) {
			continue
		}
		return fmt.Errorf("kube-proxy has no rules for %v on this node yet, so nothing was removed; "+
			"without kube-proxy, use cleanup without --keep-kube-proxy", f)
	}
	return nil
}

// withIPv6 reports whether this node has IPv6, as kube-proxy finds out. In mode nftables it has tables of
// both families then.
func withIPv6() bool {
	_, err := os.Stat("/proc/net/if_inet6")
	disabled, _ := os.ReadFile("/proc/sys/net/ipv6/conf/all/disable_ipv6") // where it is missing, it is enabled
	return err == nil && strings.TrimSpace(string(disabled)) != "1"
}

// stillThere returns an error if something is left of that which should have gone.
func stillThere(c *config.Config, which func(found) found) error {
	left, err := newFinder(c.IPVS()).find(true)
	if text := which(left).String(); text != "" {
		err = errors.Join(err, fmt.Errorf("still there: %s; %s", text, leftoversRemedy))
	}
	return err
}

func removeTables(names ...string) error {
	err := kernel.RemoveTables(names...)
	if errors.Is(err, kernel.ErrOwned) {
		return fmt.Errorf("%w (stop the daemon first)", err)
	}
	return err
}
