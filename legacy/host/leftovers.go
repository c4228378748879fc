package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/legacy/device"
	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/legacy/userspace"
	"github.com/vmapd/vmapd/model"
)

// Leftover is a number of objects of a kind on the node, and who made them.
type Leftover struct {
	Owner, Kind string
	Number      int
	Remove      func() error // removes these, with the rules that lead to chains
}

// Owners of leftovers.
const (
	OwnerKubeProxy = "kube-proxy"
	OwnerVmapd     = "vmapd" // with another backend
)

// Kinds of leftovers, besides the chains of a variant.
const (
	KindDevice = "IPVS device"
	KindSet    = "ipset"
)

// NFT are the tables of iptables-nft, without the program: it refuses a family with a rule of nft's own.
type NFT interface {
	// Chains returns the names of a family's chains.
	Chains(model.Family) ([]string, error)
	// HasRules reports whether a chain has a rule.
	HasRules(f model.Family, table, chain string) (bool, error)
	// Remove removes chains, and the rules that lead there.
	Remove(f model.Family, theirs func(chain string) bool) error
}

// Leftovers finds what other backends and kube-proxy have on this node.
type Leftovers struct {
	NFT NFT
	// Rules is the iptables backend that runs, or nil.
	Rules *IPTables
	// RunsIPVS is whether the IPVS backend runs. Then all of its objects and all virtual servers are its own.
	RunsIPVS bool
	// RunsUserspace is whether the backend userspace runs, whose device is no leftover then.
	RunsUserspace bool
	Options       ipvs.Options
}

// variants of iptables.
const (
	variantNFT    = "nft"
	variantLegacy = "legacy"
)

// variant returns the variant of the programs.
func (p *programs) variant() string {
	if strings.Contains(p.version, "nf_tables") {
		return variantNFT
	}
	return variantLegacy
}

// kubeProxyChains are the beginnings of the names of kube-proxy's chains, in all its modes.
// KUBE-FIREWALL, KUBE-IPTABLES-HINT and KUBE-KUBELET-CANARY belong to kubelet.
var kubeProxyChains = []string{
	"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS", "KUBE-NODE-PORT", "KUBE-SVC-", "KUBE-SVL-",
	"KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-", "KUBE-XLB-", "KUBE-MARK-MASQ", "KUBE-POSTROUTING", "KUBE-FORWARD",
	"KUBE-PROXY-", "KUBE-LOAD-BALANCER", "KUBE-SOURCE-RANGES-FIREWALL", "KUBE-IPVS-",
}

// kubeletsToo are chains of kube-proxy's that kubelet before 1.28 makes, too, whenever it starts.
// Alone they are no sign of kube-proxy.
var kubeletsToo = []string{"KUBE-MARK-MASQ", "KUBE-POSTROUTING"}

// ownerOf returns the owner of a chain that the running backend does not use, or "".
func (l *Leftovers) ownerOf(f model.Family, variant, chain string) string {
	isKubeProxys := func(prefix string) bool { return strings.HasPrefix(chain, prefix) }
	switch {
	case slices.ContainsFunc(kubeProxyChains, isKubeProxys):
		return OwnerKubeProxy
	case iptables.IsOurs(chain) && !l.Rules.uses(f, variant), iptables.IsIPVS(chain) && !l.RunsIPVS:
		return OwnerVmapd
	}
	return ""
}

// uses reports whether the backend's rules are in the tables of a variant.
func (b *IPTables) uses(f model.Family, variant string) bool {
	in := func(r *ruleFamily) bool { return r.family == f && r.variant() == variant }
	return b != nil && slices.ContainsFunc(b.families, in)
}

// Find finds objects by kind and owner, in the order of their removal: chains first, because rules use ipsets. The
// error says what could not be examined.
func (l *Leftovers) Find() (found []Leftover, err error) {
	var errs []error
	for _, f := range model.Families {
		chains, err := l.NFT.Chains(f)
		errs = append(errs, ofVariant(f, variantNFT, err))
		found = append(found, l.inChains(f, variantNFT, chains, l.NFT.Remove)...)
		_, saved, err := l.legacy(f)
		errs = append(errs, ofVariant(f, variantLegacy, err))
		found = append(found, l.inChains(f, variantLegacy, saved.Chains(""), l.removeLegacy)...)
	}
	ofIPVS, err := l.findIPVS()
	found = append(found, ofIPVS...)
	ours, unknown := device.Find(userspace.DeviceName)
	if ours != nil && !l.RunsUserspace {
		remove := func() error { return device.Remove(userspace.DeviceName) }
		found = append(found, Leftover{OwnerVmapd, "device of userspace", 1, remove})
	}
	return found, errors.Join(append(errs, err, unknown)...)
}

func ofVariant(f model.Family, variant string, err error) error {
	if err != nil {
		err = fmt.Errorf("%v chains of iptables-%s: %w", f, variant, err)
	}
	return err
}

// inChains returns those chains that the running backend does not use, by owner.
func (l *Leftovers) inChains(
	f model.Family, variant string, chains []string, remove func(model.Family, func(chain string) bool) error,
) (found []Leftover) {
	for _, owner := range []string{OwnerKubeProxy, OwnerVmapd} {
		theirs := func(chain string) bool { return l.ownerOf(f, variant, chain) == owner }
		n := 0
		for _, chain := range chains {
			if theirs(chain) {
				n++
			}
		}
		if n > 0 && (owner == OwnerVmapd || slices.ContainsFunc(chains, isSure)) {
			do := func() error { return ofVariant(f, variant, remove(f, theirs)) }
			found = append(found, Leftover{owner, "iptables-" + variant + " chain", n, do})
		}
	}
	return found
}

// isSure reports whether a chain is kube-proxy's, and can't be kubelet's.
func isSure(chain string) bool {
	return new(Leftovers).ownerOf(model.IPv4, "", chain) == OwnerKubeProxy && !slices.Contains(kubeletsToo, chain)
}

// LegacyTables returns the names of the tables of iptables-legacy that this network namespace has.
func LegacyTables(f model.Family) ([]string, error) {
	file := "/proc/thread-self/net/ip_tables_names"
	if f == model.IPv6 {
		file = "/proc/thread-self/net/ip6_tables_names"
	}
	names, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // the kernel has no iptables-legacy
	}
	return strings.Fields(string(names)), err
}

// legacy returns the programs of iptables-legacy, and all rules in their tables; nothing if the family has none of
// these, or only the running backend's. To ask for a table that is not there could make it.
func (l *Leftovers) legacy(f model.Family) (*programs, *iptables.Saved, error) {
	none := &iptables.Saved{}
	tables, err := LegacyTables(f)
	if err != nil || len(tables) == 0 {
		return nil, none, err
	}
	p, err := openProgram(f, "-"+variantLegacy)
	if err != nil {
		return nil, none, err
	}
	// The running backend may have tens of thousands of chains.
	if l.Rules.uses(f, variantLegacy) {
		kubeProxys, err := p.tables.ChainExists("nat", "KUBE-SERVICES")
		ipvs, err2 := p.tables.ChainExists("nat", iptables.IPVSPrefix+"POSTROUTING")
		if err = errors.Join(err, err2); err != nil || !kubeProxys && !ipvs {
			return nil, none, err
		}
	}
	saved, err := p.save(context.Background())
	if err != nil {
		return nil, none, err
	}
	return p, saved, nil
}

// removeLegacy removes chains of iptables-legacy, and the rules that lead there: of each table all or, after an error,
// none.
func (l *Leftovers) removeLegacy(f model.Family, theirs func(chain string) bool) (err error) {
	const tries = 3 // other programs may change the tables meanwhile
	for range tries {
		p, saved, failed := l.legacy(f)
		remove := saved.RemoveText(theirs)
		if failed != nil || remove == "" {
			return failed
		}
		if err = p.restore(context.Background(), remove); err == nil {
			return nil
		}
	}
	return err
}

// KubeProxyRules reports how far kube-proxy is with the chains of a family, in either variant of iptables: whether it
// has begun, and whether it has written its rules. In modes iptables and ipvs it makes chains of both families when it
// starts, and later writes the rules of all Services of a family at once, together with those of KUBE-POSTROUTING.
func (l *Leftovers) KubeProxyRules(f model.Family) (begun, written bool, err error) {
	const table, postrouting = "nat", "KUBE-POSTROUTING"
	chains, err := l.NFT.Chains(f)
	if err == nil && len(chains) > 0 {
		written, err = l.NFT.HasRules(f, table, postrouting)
	}
	_, saved, legacyErr := l.legacy(f)
	chains = append(chains, saved.Chains("")...)
	written = written || len(saved.Rules(table, postrouting)) > 0
	begun = slices.ContainsFunc(chains, isSure)
	return begun, begun && written, errors.Join(err, legacyErr)
}
