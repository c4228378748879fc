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
	// RunsIPVS is whether the IPVS backend runs. Then all of its objects and all virtual servers
	// are its own.
	RunsIPVS bool
	Options  ipvs.Options

	legacy [len(model.Families)]legacyFound
}

// legacyFound is what was found in the tables of iptables-legacy when they had these sizes: to look
// into them takes a copy of all their rules.
type legacyFound struct {
	sizes string
	count map[string]int // by owner
}

// Find counts objects by kind and owner; those that are not there are left out.
func (d *Finder) Find() (map[Leftover]int, error) {
	found := map[Leftover]int{}
	var errs []error
	for _, f := range model.Families {
		names, err := d.NFTChains(f)
		errs = append(errs, err)
		for owner, n := range d.byOwner(f, variantNFT, names) {
			found[Leftover{owner, KindNFTChain}] += n
		}
		counts, err := d.findLegacy(f)
		errs = append(errs, err)
		for owner, n := range counts {
			found[Leftover{owner, KindLegacyChain}] += n
		}
	}
	errs = append(errs, d.findIPVS(found))
	return found, errors.Join(errs...)
}

func (d *Finder) findLegacy(f model.Family) (map[string]int, error) {
	sizes, err := legacySizes(f)
	if last := d.legacy[f]; err != nil || sizes == last.sizes {
		return last.count, err
	}
	names, err := legacyChains(f)
	if err != nil {
		return nil, err
	}
	d.legacy[f] = legacyFound{sizes, d.byOwner(f, variantLegacy, names)}
	return d.legacy[f].count, nil
}

// kubeletsToo are chains of kube-proxy's that kubelet before 1.28 makes, too, whenever it starts.
// Alone they are no sign of kube-proxy.
var kubeletsToo = []string{"KUBE-MARK-MASQ", "KUBE-POSTROUTING"}

// KubeProxyRules reports how far kube-proxy is with the chains of a family, in either variant of
// iptables: whether it has begun, and whether it has written its rules. In modes iptables and ipvs it
// makes chains of both families when it starts, and later writes the rules of all Services of a
// family at once, together with those of KUBE-POSTROUTING.
func (r Remover) KubeProxyRules(f model.Family) (begun, written bool, err error) {
	const nat, chain = "nat", "KUBE-POSTROUTING"
	names, err := r.NFTChains(f)
	rules, rulesErr := r.NFTRules(f, chain)
	legacyErr := eachLegacyTable(f, func(s legacySocket, table string) error {
		t, err := s.read(table)
		if err != nil {
			return err
		}
		list, err := t.Chains()
		names = append(names, list...)
		if table != nat || err != nil {
			return err
		}
		n, err := t.Rules(chain)
		rules += n
		return err
	})
	begun = slices.ContainsFunc(names, func(name string) bool { return isKubeProxys(name) && !slices.Contains(kubeletsToo, name) })
	return begun, begun && rules > 0, errors.Join(err, rulesErr, legacyErr)
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
		case iptables.IsOurs(chain) && !d.Rules.uses(f, variant), iptables.IsIPVS(chain) && !d.RunsIPVS:
			count[OwnerVmapd]++
		}
	}
	if !sure {
		delete(count, OwnerKubeProxy)
	}
	return count
}

// findIPVS counts devices, virtual servers and ipsets.
func (d *Finder) findIPVS(found map[Leftover]int) error {
	links, err := openLinks()
	if err != nil {
		return err
	}
	defer links.Close()
	devices := map[string]string{OwnerKubeProxy: KubeProxyDevice}
	if !d.RunsIPVS {
		devices[OwnerVmapd] = d.Options.WithDefaults().Device
	}
	for owner, name := range devices {
		link, err := findDevice(links, name)
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
	if !hasSets() {
		return nil
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

// findServers counts the virtual servers of the owner of a device: nothing else tells whose they
// are.
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
