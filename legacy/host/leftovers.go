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

// Unknown is the number of objects of a kind that could not be examined.
const Unknown = -1

// Find counts objects by kind and owner; those that are not there are left out, and what could not be examined is
// [Unknown].
func (d *Finder) Find() (map[Leftover]int, error) {
	d.listed = map[model.Family]*iptables.Saved{}
	return d.find(func(p *tables) ([]string, error) {
		if d.Rules.uses(p.family, variantLegacy) { // its own chains may be tens of thousands
			return p.signs()
		}
		saved, err := p.save()
		if err != nil {
			return nil, err
		}
		d.listed[p.family] = saved
		return saved.All(), nil
	})
}

// Look is Find at a cost that many chains of iptables-legacy do not change: it looks for kube-proxy's chain
// KUBE-SERVICES, and lists chains only where that is.
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

func (d *Finder) find(legacy func(*tables) ([]string, error)) (map[Leftover]int, error) {
	found := map[Leftover]int{}
	count := func(f model.Family, variant string, names []string, err error) error {
		for owner, n := range d.byOwner(f, variant, names) {
			found[Leftover{owner, kindOf[variant]}] += n
		}
		return err
	}
	failed := d.each(func(f model.Family) error {
		names, err := d.NFT.Chains(f)
		return count(f, variantNFT, names, err)
	}, func(p *tables) error {
		names, err := legacy(p)
		return count(p.family, variantLegacy, names, err)
	})
	for variant := range failed {
		unknown(found, kindOf[variant])
	}
	return found, errors.Join(failed.join(), d.findIPVS(found))
}

func unknown(found map[Leftover]int, kind string) {
	found[Leftover{OwnerKubeProxy, kind}], found[Leftover{OwnerVmapd, kind}] = Unknown, Unknown
}

var kindOf = map[string]string{variantNFT: KindNFTChain, variantLegacy: KindLegacyChain}

// kubeletsToo are chains of kube-proxy's that kubelet before 1.28 makes, too, whenever it starts.
// Alone they are no sign of kube-proxy.
var kubeletsToo = []string{"KUBE-MARK-MASQ", "KUBE-POSTROUTING"}

// KubeProxyRules reports how far kube-proxy is with the chains of a family, in either variant of iptables: whether it
// has begun, and whether it has written its rules. In modes iptables and ipvs it makes chains of both families when it
// starts, and later writes the rules of all Services of a family at once, together with those of KUBE-POSTROUTING.
func (r *Remover) KubeProxyRules(of model.Family) (begun, written bool, err error) {
	const table, postrouting = "nat", "KUBE-POSTROUTING"
	note := func(chains []string, hasRules bool) {
		begun = begun || slices.ContainsFunc(chains, func(chain string) bool {
			return isKubeProxys(chain) && !slices.Contains(kubeletsToo, chain)
		})
		written = written || hasRules
	}
	failed := r.each(func(f model.Family) error {
		if f != of {
			return nil
		}
		chains, err := r.NFT.Chains(f)
		if err != nil || len(chains) == 0 {
			return err
		}
		has, err := r.NFT.HasRules(f, table, postrouting)
		note(chains, has)
		return err
	}, func(p *tables) error {
		if p.family != of {
			return nil
		}
		saved, err := p.save()
		if err == nil {
			note(saved.All(), len(saved.Rules(table, postrouting)) > 0)
		}
		return err
	})
	return begun, begun && written, failed.join()
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
			unknown(found, KindDevice)
			unknown(found, KindServer)
			return err
		}
		if link != nil {
			found[Leftover{owner, KindDevice}] = 1
		}
	}
	serverErr := d.findServers(found)
	if serverErr != nil {
		unknown(found, KindServer)
	}
	names, err := listSets()
	if err != nil {
		unknown(found, KindSet)
	}
	for _, name := range names {
		switch {
		case isKubeProxySet(name):
			found[Leftover{OwnerKubeProxy, KindSet}]++
		case isOurSet(name) && !d.RunsIPVS:
			found[Leftover{OwnerVmapd, KindSet}]++
		}
	}
	return errors.Join(serverErr, err)
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
