package leftovers

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/legacy/userspace"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/nft/others"
)

// Remove removes everything that any proxy left. After an error, it continues with the rest,
// unless it lacks the permission for all of it.
func Remove(o ipvs.Options) error {
	all := func(f Found) Found { return f }
	return remove(o, all, NewFinder(o).RemoveRules, host.RemoveIPVS, nft.TableName, KubeProxyTable)
}

// RemoveOwn is Remove for everything that vmapd left, once kube-proxy serves. A node without
// anything of vmapd's needs no kube-proxy.
func RemoveOwn(o ipvs.Options) error {
	if stillThere(o, ofVmapd) == nil {
		return nil
	}
	if err := kubeProxyServes(o); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	return remove(o, ofVmapd, NewFinder(o).RemoveOwnRules, host.RemoveOwnIPVS, nft.TableName)
}

// remove removes tables, rules, and then the ipsets to which these refer.
func remove(
	o ipvs.Options, which func(Found) Found, rules func() error, servers func(ipvs.Options) error, tables ...string,
) error {
	err := removeTables(tables...)
	if errors.Is(err, kernel.ErrNotPermitted) {
		return fmt.Errorf("clean up: %w", err)
	}
	_, traces := others.RemoveStaleTraces()
	err = errors.Join(err, rules(), servers(o), host.RemoveDevice(userspace.DeviceName), traces)
	return errors.Join(err, stillThere(o, which))
}

func ofVmapd(f Found) Found { return f.Of(host.OwnerVmapd) }

// kubeProxyServes returns an error unless kube-proxy has written its rules. A pod of kube-proxy is ready a second or
// more before, and those of IPv6 come after those of IPv4. Without any rule, connections fail; without any rule that
// uses connection tracking, the kernel ends that for the family, and translates none of them afterwards.
func kubeProxyServes(o ipvs.Options) error {
	r := NewFinder(o)
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
	disabled, _ := os.ReadFile("/proc/sys/net/ipv6/conf/all/disable_ipv6") // where it is missing, it is enabled
	return err == nil && strings.TrimSpace(string(disabled)) != "1"
}

// stillThere returns an error if something is left of that which should have gone.
func stillThere(o ipvs.Options, which func(Found) Found) error {
	left, err := NewFinder(o).All(true)
	if text := which(left).String(); text != "" {
		err = errors.Join(err, fmt.Errorf("still there: %s; %s", text, Remedy))
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
