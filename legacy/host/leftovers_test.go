package host

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/model"
)

// numbers returns the numbers of objects by owner.
func numbers(found []Leftover) map[string]int {
	n := map[string]int{}
	for _, l := range found {
		n[l.Owner] += l.Number
	}
	return n
}

func TestWhoseAChainIs(t *testing.T) {
	kubelets := []string{"KUBE-FIREWALL", "KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY", "KUBE-MARK-DROP", "KUBE-MARK-MASQ", "KUBE-POSTROUTING"}
	legacy := &IPTables{families: []*ruleFamily{{programs: &programs{family: model.IPv4, version: "iptables v1.8.9 (legacy)"}}}}
	ours, ipvs := iptables.Prefix+"SERVICES", iptables.IPVSPrefix+"FIRST"
	for name, test := range map[string]struct {
		finder Leftovers
		chains []string
		want   map[string]int
	}{
		"of others":                 {chains: []string{"DOCKER", "INPUT", "MY-KUBE-SVC-A"}},
		"kubelet's, of any version": {chains: kubelets},
		"kube-proxy's":              {chains: append([]string{"KUBE-SERVICES"}, kubelets...), want: map[string]int{OwnerKubeProxy: 3}},
		"another backend's":         {chains: []string{ours, ipvs}, want: map[string]int{OwnerVmapd: 2}},
		"with IPVS":                 {finder: Leftovers{RunsIPVS: true}, chains: []string{ours, ipvs}, want: map[string]int{OwnerVmapd: 1}},
		"with the same rules":       {finder: Leftovers{Rules: legacy}, chains: []string{ours, ipvs}, want: map[string]int{OwnerVmapd: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			got, want := numbers(test.finder.inChains(model.IPv4, variantLegacy, test.chains, nil)), test.want
			if want == nil {
				want = map[string]int{}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if got := numbers((&Leftovers{Rules: legacy}).inChains(model.IPv4, variantNFT, []string{ours}, nil)); got[OwnerVmapd] != 1 {
		t.Errorf("of the other variant: %v", got)
	}
}
