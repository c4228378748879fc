package host

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
)

// Leftover is a kind of objects on the node, and who made them.
type Leftover struct{ Owner, Kind string }

// Owners of leftovers.
const (
	OwnerKubeProxy = "kube-proxy"
	OwnerVmapd     = "vmapd" // with another backend
)

// Kinds of leftovers.
const (
	KindNFTChain    = "iptables-nft chain"
	KindLegacyChain = "iptables-legacy chain"
	KindDevice      = "IPVS device"
	KindServer      = "IPVS virtual server"
	KindSet         = "ipset"
)

// Finder counts what other backends and kube-proxy have on the node. It is for one goroutine.
type Finder struct {
	Remover
	// Rules is the iptables backend that runs, or nil.
	Rules *IPTables
	// RunsIPVS is whether the IPVS backend runs. Then all of its objects and all virtual servers are its own.
	RunsIPVS bool
	Options  ipvs.Options
}

// kubeServices is in the table nat as long as kube-proxy's rules of any mode of iptables are.
const kubeServices = "KUBE-SERVICES"

// Find counts objects by kind and owner; those that are not there are left out.
func (d *Finder) Find() (map[Leftover]int, error) {
	d.listed = map[string]*iptables.Saved{}
	return d.find(func(p *tables) ([]string, error) {
		if d.Rules.uses(p.family, p.kind) { // its own chains may be tens of thousands
			return p.signs()
		}
		saved, err := p.save()
		if err != nil {
			return nil, err
		}
		d.listed[p.name] = saved
		return saved.All(), nil
	})
}

// Look is Find at a cost that many chains do not change: it looks for kube-proxy's chain KUBE-SERVICES, and
// lists chains only where that is.
func (d *Finder) Look() (map[Leftover]int, error) {
	return d.find(func(p *tables) ([]string, error) {
		if there, err := p.has("nat", kubeServices); !there || err != nil {
			return nil, err
		}
		saved, err := p.save()
		if err != nil {
			return nil, err
		}
		return saved.All(), nil
	})
}

func (d *Finder) find(chains func(*tables) ([]string, error)) (map[Leftover]int, error) {
	found := map[Leftover]int{}
	err := d.each(func(p *tables) error {
		names, err := chains(p)
		for owner, n := range d.byOwner(p.family, p.kind, names) {
			found[Leftover{owner, kindOf[p.kind]}] += n
		}
		return err
	})
	return found, errors.Join(err, d.findIPVS(found))
}

var kindOf = map[string]string{variantNFT: KindNFTChain, variantLegacy: KindLegacyChain}

// kubeletsToo are chains of kube-proxy's that kubelet before 1.28 makes, too, whenever it starts.
// Alone they are no sign of kube-proxy.
var kubeletsToo = []string{"KUBE-MARK-MASQ", "KUBE-POSTROUTING"}

// KubeProxyRules reports how far kube-proxy is with the chains of a family, in either variant of iptables: whether it
// has begun, and whether it has written its rules. In modes iptables and ipvs it makes chains of both families when it
// starts, and later writes the rules of all Services of a family at once, together with those of KUBE-POSTROUTING.
func (r *Remover) KubeProxyRules(f model.Family) (begun, written bool, err error) {
	err = r.each(func(p *tables) error {
		if p.family != f {
			return nil
		}
		saved, err := p.save()
		if err != nil {
			return err
		}
		begun = begun || slices.ContainsFunc(saved.All(), func(chain string) bool {
			return isKubeProxys(chain) && !slices.Contains(kubeletsToo, chain)
		})
		written = written || len(saved.Rules("nat", "KUBE-POSTROUTING")) > 0
		return nil
	})
	return begun, begun && written, err
}

// byOwner counts those chains that the running backend does not use.
func (d *Finder) byOwner(f model.Family, variant string, chains []string) map[string]int {
	count := map[string]int{}
	sure := false
	for _, chain := range chains {
		switch {
		case isKubeProxys(chain):
			count[OwnerKubeProxy]++
			sure = sure || !slices.Contains(kubeletsToo, chain)
		case d.isLeft(f, variant, chain):
			count[OwnerVmapd]++
		}
	}
	if !sure {
		delete(count, OwnerKubeProxy)
	}
	return count
}

// isLeft reports whether a chain is of a backend that does not run.
func (d *Finder) isLeft(f model.Family, variant, chain string) bool {
	return iptables.IsOurs(chain) && !d.Rules.uses(f, variant) || iptables.IsIPVS(chain) && !d.RunsIPVS
}

// findIPVS counts devices, virtual servers and ipsets.
func (d *Finder) findIPVS(found map[Leftover]int) error {
	devices := map[string]string{OwnerKubeProxy: KubeProxyDevice}
	if !d.RunsIPVS {
		devices[OwnerVmapd] = d.Options.WithDefaults().Device
	}
	for owner, name := range devices {
		link, err := findDevice(name)
		if err != nil {
			return err
		}
		if link != nil {
			found[Leftover{owner, KindDevice}] = 1
		}
	}
	if err := d.findServers(found); err != nil {
		return err
	}
	names, err := listSets()
	for _, name := range names {
		switch {
		case isKubeProxySet(name):
			found[Leftover{OwnerKubeProxy, KindSet}]++
		case isOurSet(name) && !d.RunsIPVS:
			found[Leftover{OwnerVmapd, KindSet}]++
		}
	}
	return err
}

// findServers counts the virtual servers of the owner of a device: nothing else shows their owner.
func (d *Finder) findServers(found map[Leftover]int) error {
	if d.RunsIPVS {
		return nil
	}
	owner := ""
	for _, o := range []string{OwnerVmapd, OwnerKubeProxy} {
		if found[Leftover{o, KindDevice}] > 0 {
			owner = o
		}
	}
	if owner == "" || findIPVS() != nil {
		return nil
	}
	table, err := openServers()
	if err != nil {
		return err
	}
	defer table.Close()
	for _, f := range model.Families {
		list, err := table.list(f)
		if err != nil {
			return fmt.Errorf("list %v virtual servers: %w", f, err)
		}
		for k := range list {
			if !d.Options.Foreign(k) {
				found[Leftover{owner, KindServer}]++
			}
		}
	}
	return nil
}
