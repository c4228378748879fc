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

func TestWhyTheSourceIsReplaced(t *testing.T) {
	config := modeltest.Config()
	config.LocalPods.ClusterCIDRs = prefixes("10.0.0.0/8")
	masqueradeAll := config
	masqueradeAll.MasqueradeAll = true
	slice := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Local("10.0.0.2").Ready("10.0.0.3")
	hosted := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Local(modeltest.NodeIP4, "10.0.0.2")
	cluster, local := allKinds(), allKinds().Policies("", "Local")
	for _, tt := range []struct {
		name    string
		config  model.Config
		service modeltest.Service
		slice   modeltest.Slice
		c       model.Connection
		want    string
	}{
		{"a pod to a cluster IP keeps its address", config, cluster, slice, tcp("10.0.0.9", "172.30.0.41:80"), "10.0.0.2:8080, 10.0.0.3:8080"},
		{"others do not", config, cluster, slice, tcp("203.0.113.9", "172.30.0.41:80"), "10.0.0.2:8080 masqueraded: off-cluster, 10.0.0.3:8080 masqueraded: off-cluster"},
		{"nor does the node", config, cluster, slice, tcp("192.168.0.2", "172.30.0.41:80"), "10.0.0.2:8080 masqueraded: off-cluster, 10.0.0.3:8080 masqueraded: off-cluster"},
		{"with masqueradeAll nobody does", masqueradeAll, cluster, slice, tcp("10.0.0.9", "172.30.0.41:80"), "10.0.0.2:8080 masqueraded: every cluster IP, 10.0.0.3:8080 masqueraded: every cluster IP"},
		{"masqueradeAll is about cluster IPs", masqueradeAll, local, slice, tcp("203.0.113.9", "192.168.98.11:80"), "10.0.0.2:8080"},
		{"external, Cluster", config, cluster, slice, tcp("203.0.113.9", "192.168.99.11:80"), "10.0.0.2:8080 masqueraded: external, 10.0.0.3:8080 masqueraded: external"},
		{"external, Local, from outside", config, local, slice, tcp("203.0.113.9", "192.168.99.11:80"), "10.0.0.2:8080"},
		{"external, Local, from a pod", config, local, slice, tcp("10.0.0.9", "192.168.0.2:30001"), "10.0.0.2:8080, 10.0.0.3:8080"},
		{"external, Local, from the node", config, local, slice, tcp("192.168.0.2", "192.168.0.2:30001"), "10.0.0.2:8080 masqueraded: from the node, 10.0.0.3:8080 masqueraded: from the node"},
		{"a pod to itself", config, cluster, slice, tcp("10.0.0.2", "172.30.0.41:80"), "10.0.0.2:8080 masqueraded: hairpin, 10.0.0.3:8080"},
		{"a pod to itself by an external address, Local", config, local, slice, tcp("10.0.0.2", "192.168.98.11:80"), "10.0.0.2:8080 masqueraded: hairpin, 10.0.0.3:8080"},
		{"a pod to itself by a node port, Local", config, local, slice, tcp("10.0.0.2", "192.168.0.2:30001"), "10.0.0.2:8080 masqueraded: hairpin, 10.0.0.3:8080"},
		// Its own node masquerades it; it comes to ours only if sent here.
		{"a pod of another node to itself", config, cluster, slice, tcp("10.0.0.3", "172.30.0.41:80"), "10.0.0.2:8080, 10.0.0.3:8080"},
		{"to a process on the node", config, cluster, hosted, tcp("203.0.113.9", "192.168.98.11:80"), "10.0.0.2:8080 masqueraded: external, 192.168.0.2:8080 on the node"},
		{"to a process on the node, masqueradeAll", masqueradeAll, cluster, hosted, tcp("10.0.0.9", "172.30.0.41:80"), "10.0.0.2:8080 masqueraded: every cluster IP, 192.168.0.2:8080 on the node"},
		{"from the node to a process on it", config, local, hosted, tcp("192.168.0.2", "192.168.98.11:80"), "10.0.0.2:8080 masqueraded: from the node, 192.168.0.2:8080 masqueraded: hairpin"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := ""
			for i, target := range model.Decide(modeltest.Snapshot(tt.config, modeltest.OurNode(), tt.service, tt.slice), tt.c).Targets {
				text += [...]string{"", ", "}[min(i, 1)] + target.Addr.String() + snatReasons[target.SNAT]
			}
			equal(t, "targets", tt.want, text)
		})
	}
}
