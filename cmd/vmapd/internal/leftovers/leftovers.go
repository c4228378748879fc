package leftovers

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/nft/others"
	"github.com/vmapd/vmapd/nft/tracer"
)

// KubeProxyTable is the table of kube-proxy's nftables mode.
const KubeProxyTable = "kube-proxy"

// kindTable is a kind of leftovers; legacy/host has the others.
const kindTable = "nftables table"

// Found are the objects that other backends or kube-proxy have on the node.
type Found []host.Leftover

// Finder finds leftovers. It is for one goroutine.
type Finder struct {
	host.Leftovers
	RunsNFT bool // its table is no leftover
}

// NewFinder returns a finder for a node on which no backend runs. o has the virtual servers that stay.
func NewFinder(o ipvs.Options) *Finder {
	return &Finder{Leftovers: host.Leftovers{NFT: others.IPTables{}, Options: o}}
}

// All looks for all leftovers, in the order of their removal. The error says what could not be examined.
func (d *Finder) All() (found Found, err error) {
	var errs []error
	for _, f := range model.Families {
		names, err := others.TableNames(f)
		errs = append(errs, err)
		for _, name := range names {
			remove := func() error { return kernel.RemoveTables(kernel.Options{}, name) }
			switch {
			case name == KubeProxyTable:
				found = append(found, host.Leftover{Owner: host.OwnerKubeProxy, Kind: kindTable, Number: 1, Remove: remove})
			case name == nft.TableName && !d.RunsNFT:
				found = append(found, host.Leftover{Owner: host.OwnerVmapd, Kind: kindTable, Number: 1, Remove: remove})
			}
		}
	}
	more, err := d.Find()
	return append(found, more...), errors.Join(append(errs, err)...)
}

// Of returns what one owner has.
func (f Found) Of(owner string) Found {
	return slices.DeleteFunc(slices.Clone(f), func(l host.Leftover) bool { return l.Owner != owner })
}

// Remove removes the objects. After an error, it continues with the rest.
func (f Found) Remove() error {
	var errs []error
	for _, l := range f {
		errs = append(errs, l.Remove())
	}
	return errors.Join(errs...)
}

// String is like "of kube-proxy: 1 × IPVS device, 57 × iptables-nft chain".
func (f Found) String() string {
	var all []string
	for _, owner := range []string{host.OwnerKubeProxy, host.OwnerVmapd} {
		counts := map[string]int{}
		for _, l := range f.Of(owner) {
			counts[l.Kind] += l.Number
		}
		var parts []string
		for kind, n := range counts {
			parts = append(parts, fmt.Sprintf("%d × %s", n, kind))
		}
		if slices.Sort(parts); len(parts) > 0 {
			all = append(all, fmt.Sprintf("of %s: %s", owner, strings.Join(parts, ", ")))
		}
	}
	return strings.Join(all, "; ")
}

// RunningProxy says which proxy runs in this network namespace: the process kube-proxy, or what answers at an address
// of metrics; "" if none is found.
func RunningProxy(address string) string {
	if proxy := Answering(address); proxy != "" {
		return proxy
	}
	networkOf := func(p procfs.Proc) uint32 {
		of, _ := p.Namespaces()
		return of["net"].Inode
	}
	own, _ := procfs.Self()
	all, _ := procfs.AllProcs()
	for _, p := range all {
		if name, _ := p.Comm(); name == "kube-proxy" && networkOf(p) == networkOf(own) {
			return fmt.Sprintf("kube-proxy runs as process %d", p.PID)
		}
	}
	return ""
}

// Answering says which proxy answers at an address of metrics, by its mode, as kube-proxy serves it; "" if none does.
func Answering(address string) string {
	const timeout, longest = time.Second, 16
	client := http.Client{Timeout: timeout}
	response, err := client.Get("http://" + address + "/proxyMode")
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	mode, err := io.ReadAll(io.LimitReader(response.Body, longest))
	modes := []config.Backend{config.NFTables, config.IPTables, config.IPVS, config.Userspace}
	if err != nil || !slices.Contains(modes, config.Backend(mode)) {
		return ""
	}
	return fmt.Sprintf("a proxy with mode %s answers at %s", mode, address)
}

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
	noIPv6, err := nodesetup.Sysctl("net/ipv6/conf/all/disable_ipv6")
	withIPv6 := err == nil && noIPv6 != "1" // as kube-proxy: in mode nftables it has tables of both families then
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
		if served[f] || !begun[f] && slices.Contains(served[:], true) && (!tables || f == model.IPv6 && !withIPv6) {
			continue
		}
		return fmt.Errorf("kube-proxy has no rules for %v on this node yet, so nothing was removed; "+
			"without kube-proxy, use cleanup without --keep-kube-proxy", f)
	}
	return nil
}
