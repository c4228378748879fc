package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/legacy/iptables"
)

// kubeProxyChains are the beginnings of the names of kube-proxy's chains, in all its modes.
// KUBE-FIREWALL, KUBE-IPTABLES-HINT and KUBE-KUBELET-CANARY belong to kubelet.
var kubeProxyChains = []string{
	"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS", "KUBE-NODE-PORT", "KUBE-SVC-", "KUBE-SVL-",
	"KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-", "KUBE-XLB-", "KUBE-MARK-MASQ", "KUBE-POSTROUTING", "KUBE-FORWARD",
	"KUBE-PROXY-", "KUBE-LOAD-BALANCER", "KUBE-SOURCE-RANGES-FIREWALL", "KUBE-IPVS-",
}

// RemoveRules removes all rules of the iptables backend and of kube-proxy, in both variants and
// families, except for those that the backend but uses, if it is not nil. A program that is
// missing or fails is taken for one without rules.
func RemoveRules(ctx context.Context, but *IPTables) error {
	return removeEverywhere(ctx, func(name, variant, chain string) bool {
		return isKubeProxys(chain) || iptables.IsOurs(chain) && !but.uses(name, variant)
	})
}

// RemoveOwnRules removes all rules of the iptables backend, and none of kube-proxy's.
func RemoveOwnRules(ctx context.Context) error {
	return removeEverywhere(ctx, func(_, _, chain string) bool { return iptables.IsOurs(chain) })
}

// removeEverywhere removes the chains of the given owner in both variants and families.
func removeEverywhere(ctx context.Context, theirs func(name, variant, chain string) bool) error {
	var errs []error
	for _, variant := range []string{"-legacy", "-nft"} {
		for _, name := range []string{"iptables", "ip6tables"} {
			errs = append(errs, removeRules(ctx, name+variant, func(chain string) bool { return theirs(name, variant, chain) }))
		}
	}
	return errors.Join(errs...)
}

func isKubeProxys(chain string) bool {
	return slices.ContainsFunc(kubeProxyChains, func(prefix string) bool { return strings.HasPrefix(chain, prefix) })
}

// uses reports whether the backend's rules are those that a program lists.
func (b *IPTables) uses(name, variant string) bool {
	if b == nil {
		return false
	}
	for _, f := range b.families {
		isNFT := strings.Contains(f.version, "nf_tables")
		if strings.HasPrefix(f.name, name) && isNFT == (variant == "-nft") {
			return true
		}
	}
	return false
}

func removeRules(ctx context.Context, program string, theirs func(chain string) bool) error {
	var stdout bytes.Buffer
	save := exec.CommandContext(ctx, program+"-save")
	save.Stdout = &stdout
	_ = save.Run() // not installed, or not in this kernel: then it lists nothing
	saved, err := iptables.ParseSaved(&stdout)
	if err != nil {
		return fmt.Errorf("read the output of %s: %w", save.Path, err)
	}
	remove := saved.RemoveText(theirs)
	if remove == "" {
		return nil
	}
	_, err = restore(ctx, program, text(remove))
	return err
}
