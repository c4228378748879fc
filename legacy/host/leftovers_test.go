package host

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/model"
)

func TestWhoseAChainIs(t *testing.T) {
	kubelets := []string{"KUBE-FIREWALL", "KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY", "KUBE-MARK-DROP", "KUBE-MARK-MASQ", "KUBE-POSTROUTING"}
	legacy := &IPTables{families: []*ruleFamily{{programs: &programs{family: model.IPv4, version: "iptables v1.8.9 (legacy)"}}}}
	ours, ipvs := iptables.Prefix+"SERVICES", iptables.IPVSPrefix+"FIRST"
	for name, test := range map[string]struct {
		finder Finder
		chains []string
		want   map[string]int
	}{
		"of others":                 {chains: []string{"DOCKER", "INPUT", "MY-KUBE-SVC-A"}},
		"kubelet's, of any version": {chains: kubelets},
		"kube-proxy's":              {chains: append([]string{"KUBE-SERVICES"}, kubelets...), want: map[string]int{OwnerKubeProxy: 3}},
		"another backend's":         {chains: []string{ours, ipvs}, want: map[string]int{OwnerVmapd: 2}},
		"with IPVS":                 {finder: Finder{RunsIPVS: true}, chains: []string{ours, ipvs}, want: map[string]int{OwnerVmapd: 1}},
		"with the same rules":       {finder: Finder{Rules: legacy}, chains: []string{ours, ipvs}, want: map[string]int{OwnerVmapd: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			got := test.finder.byOwner(model.IPv4, variantLegacy, test.chains)
			want := test.want
			if want == nil {
				want = map[string]int{}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if got := (&Finder{Rules: legacy}).byOwner(model.IPv4, variantNFT, []string{ours}); got[OwnerVmapd] != 1 {
		t.Errorf("of the other variant: %v", got)
	}
}

func TestWhoseASetIs(t *testing.T) {
	for name, want := range map[string]bool{
		"KUBE-CLUSTER-IP": true, "KUBE-6-LOOP-BACK": true, "KUBE-6-LOAD-BALANCER-SOURCE-CID": true, "KUBE-NODE-PORT-LOCAL-SCTP-HASH": true,
		"KUBE-SRC-2FAIIK2E4RIPMTGF": false, "KUBE-DST-5GKXTZMSDIAPFRHN": false, "KUBE-": false, "CLUSTER-IP": false, "VMAPD-SERVICES": false,
	} {
		if got := isKubeProxySet(name); got != want {
			t.Errorf("%s is kube-proxy's: %v, want %v", name, got, want)
		}
	}
}
