package leftovers

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/nft/others"
	"github.com/vmapd/vmapd/nft/tracer"
)

// Remedy is what an administrator can do where a removal fails.
const Remedy = "remove them on the node (nft, iptables-nft, iptables-legacy, ipset, ipvsadm), or restart it; " +
	"until then, Services that no longer exist may still answer"

// Remove removes everything that any proxy left.
func Remove(o ipvs.Options) error {
	return cleanUp(NewFinder(o), func(f Found) Found { return f })
}

// RemoveOwn is Remove for everything that vmapd left, once kube-proxy serves. A node without
// anything of vmapd's needs no kube-proxy.
func RemoveOwn(o ipvs.Options) error {
	d, own := NewFinder(o), func(f Found) Found { return f.Of(host.OwnerVmapd) }
	if left, err := d.All(); err == nil && len(own(left)) == 0 {
		return nil
	}
	if err := d.kubeProxyServes(); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	return cleanUp(d, own)
}

// cleanUp removes a part of what there is, and returns an error if something of it is left.
func cleanUp(d *Finder, part func(Found) Found) error {
	found, err := d.All()
	if errors.Is(err, kernel.ErrNotPermitted) {
		return fmt.Errorf("clean up: %w", kernel.ErrNotPermitted)
	}
	if err = part(found).Remove(); errors.Is(err, kernel.ErrOwned) {
		err = fmt.Errorf("%w (stop the daemon first)", err)
	}
	traces := tracer.RemoveStale()
	left, unknown := d.All()
	if err = errors.Join(err, traces, unknown); len(part(left)) > 0 {
		err = errors.Join(err, fmt.Errorf("still there: %v; %s", part(left), Remedy))
	}
	return err
}

// kubeProxyServes returns an error unless kube-proxy has written its rules. A pod of kube-proxy is ready a second or
// more before, and those of IPv6 come after those of IPv4. Without any rule, connections fail; without any rule that
// uses connection tracking, the kernel ends that for the family, and translates none of them afterwards.
func (d *Finder) kubeProxyServes() error {
	var begun, served [len(model.Families)]bool
	tables := false
	for _, f := range model.Families {
		names, err := others.TableNames(f)
		if err != nil {
			return fmt.Errorf("look for kube-proxy's %v table: %w", f, err)
		}
		if begun[f], served[f], err = d.KubeProxyRules(f); err != nil {
			return fmt.Errorf("look for kube-proxy's %v rules: %w", f, err)
		}
		if slices.Contains(names, KubeProxyTable) { // which it makes with all in it
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
	disabled, _ := nodesetup.Sysctl("net/ipv6/conf/all/disable_ipv6") // where it is missing, it is enabled
	return err == nil && disabled != "1"
}
