package model_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// detectors are all ways to tell pods from others, for our node with the pods
// 10.0.0.0/24 and fd00:10::/64; noDetectors are all configurations that can't.
var (
	detectors = map[string]model.LocalPods{
		"ClusterCIDR":         {ClusterCIDRs: prefixes("10.0.0.0/8", "fd00:10::/48")},
		"NodeCIDR":            {Mode: model.ByNodeCIDR},
		"BridgeInterface":     {Mode: model.ByBridge, Interface: modeltest.PodInterface},
		"InterfaceNamePrefix": {Mode: model.ByInterfacePrefix, Interface: "cali"},
	}
	noDetectors = map[string]model.LocalPods{
		"nothing is configured":                  {},
		"NodeCIDR, but the node has none":        {Mode: model.ByNodeCIDR},
		"BridgeInterface without a name":         {Mode: model.ByBridge},
		"InterfaceNamePrefix without one":        {Mode: model.ByInterfacePrefix},
		"ranges, but the mode does not use them": {Mode: model.ByNodeCIDR, ClusterCIDRs: prefixes("10.0.0.0/8", "fd00:10::/64")},
	}
)

// The endpoints of each client at each kind of frontend, here .2 (local) and .3, and whether
// they see the node's address instead of the client's. The rows and columns are those of
// kube-proxy's TestInternalExternalMasquerade.
func TestInternalExternalMasquerade(t *testing.T) {
	const (
		both  = "both"
		bothM = "both, masqueraded"
		one   = "local"
		oneM  = "local, masqueraded"
	)
	type policies struct{ internal, external string }
	base, eTP, iTP, bothLocal := policies{}, policies{external: "Local"}, policies{internal: "Local"}, policies{"Local", "Local"}
	for _, tt := range []struct {
		policies policies
		from, to string
		// with a detector, without one, masqueradeAll with and without one
		want [4]string
	}{
		{base, "pod", "cluster IP", [4]string{both, both, bothM, bothM}},
		{base, "pod", "node port", [4]string{bothM, bothM, bothM, bothM}},
		{base, "pod", "load balancer", [4]string{bothM, bothM, bothM, bothM}},
		{base, "node", "cluster IP", [4]string{bothM, both, bothM, bothM}},
		{base, "node", "node port", [4]string{bothM, bothM, bothM, bothM}},
		{base, "node", "load balancer", [4]string{bothM, bothM, bothM, bothM}},
		{base, "outside", "cluster IP", [4]string{bothM, both, bothM, bothM}},
		{base, "outside", "node port", [4]string{bothM, bothM, bothM, bothM}},
		{base, "outside", "load balancer", [4]string{bothM, bothM, bothM, bothM}},

		{eTP, "pod", "cluster IP", [4]string{both, both, bothM, bothM}},
		{eTP, "pod", "node port", [4]string{both, one, both, one}},
		{eTP, "pod", "load balancer", [4]string{both, one, both, one}},
		{eTP, "node", "cluster IP", [4]string{bothM, both, bothM, bothM}},
		{eTP, "node", "node port", [4]string{bothM, bothM, bothM, bothM}},
		{eTP, "node", "load balancer", [4]string{bothM, bothM, bothM, bothM}},
		{eTP, "outside", "cluster IP", [4]string{bothM, both, bothM, bothM}},
		{eTP, "outside", "node port", [4]string{one, one, one, one}},
		{eTP, "outside", "load balancer", [4]string{one, one, one, one}},

		{iTP, "pod", "cluster IP", [4]string{one, one, oneM, oneM}},
		{iTP, "pod", "node port", [4]string{bothM, bothM, bothM, bothM}},
		{iTP, "pod", "load balancer", [4]string{bothM, bothM, bothM, bothM}},
		{iTP, "node", "cluster IP", [4]string{oneM, one, oneM, oneM}},
		{iTP, "node", "node port", [4]string{bothM, bothM, bothM, bothM}},
		{iTP, "node", "load balancer", [4]string{bothM, bothM, bothM, bothM}},
		{iTP, "outside", "cluster IP", [4]string{oneM, one, oneM, oneM}},
		{iTP, "outside", "node port", [4]string{bothM, bothM, bothM, bothM}},
		{iTP, "outside", "load balancer", [4]string{bothM, bothM, bothM, bothM}},

		{bothLocal, "pod", "cluster IP", [4]string{one, one, oneM, oneM}},
		{bothLocal, "pod", "node port", [4]string{both, one, both, one}},
		{bothLocal, "pod", "load balancer", [4]string{both, one, both, one}},
		{bothLocal, "node", "cluster IP", [4]string{oneM, one, oneM, oneM}},
		{bothLocal, "node", "node port", [4]string{bothM, bothM, bothM, bothM}},
		{bothLocal, "node", "load balancer", [4]string{bothM, bothM, bothM, bothM}},
		{bothLocal, "outside", "cluster IP", [4]string{oneM, one, oneM, oneM}},
		{bothLocal, "outside", "node port", [4]string{one, one, one, one}},
		{bothLocal, "outside", "load balancer", [4]string{one, one, one, one}},
	} {
		column := func(n int, all map[string]model.LocalPods, masqueradeAll bool, podCIDRs ...string) {
			for name, how := range all {
				config := modeltest.Config()
				config.LocalPods, config.MasqueradeAll = how, masqueradeAll
				s := modeltest.Snapshot(config, modeltest.OurNode().Pods(podCIDRs...),
					modeltest.NewService("ns1/web").On("172.30.0.41", "fd00:172:30::29").
						LoadBalancer("192.168.98.11", "fd00:192:168:98::b").TCP("http", 80).NodePort(30001).
						Policies(tt.policies.internal, tt.policies.external),
					modeltest.NewSlice("ns1/web-4", "web").TCP("http", 8080).Local("10.0.0.2").Ready("10.0.0.3"),
					modeltest.NewSlice("ns1/web-6", "web").IPv6().TCP("http", 8080).Local("fd00:10::2").Ready("fd00:10::3"))
				for _, f := range model.Families {
					d := model.Decide(s, tcp(clientAddrs[tt.from][f], frontendAddrs[tt.to][f]))
					if got := shortly(d); got != tt.want[n] {
						t.Errorf("%+v, %s to %s over %v, masqueradeAll %t, %s: want %q, got %q",
							tt.policies, tt.from, tt.to, f, masqueradeAll, name, tt.want[n], got)
					}
				}
			}
		}
		column(0, detectors, false, "10.0.0.0/24", "fd00:10::/64")
		column(1, noDetectors, false)
		column(2, detectors, true, "10.0.0.0/24", "fd00:10::/64")
		column(3, noDetectors, true)
	}
}

// A pod of another node that comes by this node's node port, and gets itself, is masqueraded: with external traffic
// policy Local, its source would stay, and the packet to itself from itself is a martian there.
func TestAPodOfAnotherNodeGetsItself(t *testing.T) {
	for _, policy := range []string{"Local", "Cluster"} {
		s := modeltest.Snapshot(modeltest.Config(), modeltest.OurNode(),
			modeltest.NewService("ns1/web").On("172.30.0.41").TCP("http", 80).NodePort(30001).Policies("", policy),
			modeltest.NewSlice("ns1/web-4", "web").TCP("http", 8080).Local("10.0.0.2").Ready("10.0.1.3"))
		for source, want := range map[string]bool{"10.0.1.3": true, "10.0.1.4": policy == "Cluster"} {
			for _, target := range model.Decide(s, tcp(source, "192.168.0.2:30001")).Targets {
				if at := target.Addr.Addr().String(); at == "10.0.1.3" && target.SNAT.Masquerade() != want {
					t.Errorf("%s, from %s to %s: %v, want masquerade: %t", policy, source, at, target.SNAT, want)
				}
			}
		}
	}
}

var (
	clientAddrs = map[string][2]string{
		"pod": {"10.0.0.9", "fd00:10::9"}, "node": {modeltest.NodeIP4, modeltest.NodeIP6}, "outside": {"203.0.113.9", "2001:db8:203::9"},
	}
	frontendAddrs = map[string][2]string{
		"cluster IP":    {"172.30.0.41:80", "[fd00:172:30::29]:80"},
		"node port":     {"192.168.0.2:30001", "[fd00:192:168::2]:30001"},
		"load balancer": {"192.168.98.11:80", "[fd00:192:168:98::b]:80"},
	}
)

// shortly names those of the two endpoints that a connection may be sent to.
func shortly(d model.Decision) string {
	var ends []netip.Addr
	masqueraded := 0
	for _, t := range d.Targets {
		ends = append(ends, t.Addr.Addr())
		if t.SNAT.Masquerade() {
			masqueraded++
		}
	}
	text := "endpoints that nobody expects"
	switch f := model.FamilyOf(d.Dest.Addr()); {
	case slices.Equal(ends, []netip.Addr{modeltest.Pod(f, 0), modeltest.Pod(f, 1)}):
		text = "both"
	case slices.Equal(ends, []netip.Addr{modeltest.Pod(f, 0)}):
		text = "local"
	}
	switch masqueraded {
	case 0:
	case len(ends):
		text += ", masqueraded"
	default:
		text += ", some masqueraded"
	}
	return text
}
