package host

import (
	"errors"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/model"
)

// kubeProxyChains are the beginnings of the names of kube-proxy's chains, in all its modes.
// KUBE-FIREWALL, KUBE-IPTABLES-HINT and KUBE-KUBELET-CANARY belong to kubelet.
var kubeProxyChains = []string{
	"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS", "KUBE-NODE-PORT", "KUBE-SVC-", "KUBE-SVL-",
	"KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-", "KUBE-XLB-", "KUBE-MARK-MASQ", "KUBE-POSTROUTING", "KUBE-FORWARD",
	"KUBE-PROXY-", "KUBE-LOAD-BALANCER", "KUBE-SOURCE-RANGES-FIREWALL", "KUBE-IPVS-",
}

func isKubeProxys(chain string) bool {
	return slices.ContainsFunc(kubeProxyChains, func(prefix string) bool { return strings.HasPrefix(chain, prefix) })
}

// Remover removes what other backends and kube-proxy left on this node. It runs no program: the
// image for nftables has none. Its functions are those for the chains of iptables-nft; for those
// of iptables-legacy, the kernel is asked directly.
type Remover struct {
	NFTChains       func(model.Family) ([]string, error)
	NFTRules        func(f model.Family, chain string) (int, error) // their number in the table nat
	RemoveNFTChains func(f model.Family, theirs func(chain string) bool) error
}

// variants of iptables.
const (
	variantNFT    = "nft"
	variantLegacy = "legacy"
)

// RemoveRules removes all rules of the iptables backend and of kube-proxy, in both variants and
// families, except for those that the backend but uses, if it is not nil.
func (r Remover) RemoveRules(but *IPTables) error {
	return r.removeChains(func(f model.Family, variant, chain string) bool {
		return isKubeProxys(chain) || iptables.IsOurs(chain) && !but.uses(f, variant)
	})
}

// RemoveOwnRules removes all rules of the iptables backend, and none of kube-proxy's.
func (r Remover) RemoveOwnRules() error {
	return r.removeChains(func(_ model.Family, _, chain string) bool { return iptables.IsOurs(chain) })
}

// removeChains removes the chains of the given owner in both variants and families.
func (r Remover) removeChains(theirs func(f model.Family, variant, chain string) bool) error {
	var errs []error
	for _, f := range model.Families {
		errs = append(errs,
			removeLegacyChains(f, func(chain string) bool { return theirs(f, variantLegacy, chain) }),
			r.RemoveNFTChains(f, func(chain string) bool { return theirs(f, variantNFT, chain) }))
	}
	return errors.Join(errs...)
}

// uses reports whether the backend's rules are in the tables of a variant.
func (b *IPTables) uses(f model.Family, variant string) bool {
	return b != nil && slices.ContainsFunc(b.families, func(r *ruleFamily) bool { return r.family == f && r.variant() == variant })
}

// variant returns the variant of the programs.
func (p *programs) variant() string {
	if strings.Contains(p.version, "nf_tables") {
		return variantNFT
	}
	return variantLegacy
}
