package modeltest

import (
	"net/netip"

	"github.com/vmapd/vmapd/model"
)

// Configs are the configurations of random tests, which use them in turn.
var Configs = []model.Config{
	Config(),
	{NodeName: NodeName, NodePortAddresses: model.NodePortAddresses{All: true}, MasqueradeAll: true},
	{
		NodeName: NodeName, NodePortAddresses: model.NodePortAddresses{Primary: true},
		LocalPods: model.LocalPods{ClusterCIDRs: prefixes("10.0.0.0/8", "fd00:10::/64")},
	},
	{
		NodeName: NodeName, NodePortAddresses: model.NodePortAddresses{Primary: true, All: true},
		LocalPods: model.LocalPods{Mode: model.ByNodeCIDR}, Algorithm: model.RoundRobin, DropInvalid: true,
	},
	{
		NodeName: NodeName, NodePortAddresses: model.NodePortAddresses{Primary: true},
		LocalPods: model.LocalPods{Mode: model.ByBridge, Interface: PodBridge}, Algorithm: model.SourceHash,
	},
	{
		NodeName: NodeName, NodePortAddresses: model.NodePortAddresses{Primary: true},
		LocalPods: model.LocalPods{Mode: model.ByInterfacePrefix, Interface: "cali"}, DropInvalid: true,
	},
	{
		NodeName: NodeName, NodePortAddresses: model.NodePortAddresses{Primary: true},
		LocalPods: model.LocalPods{ClusterCIDRs: prefixes("0.0.0.0/0", "::/0")},
	},
}

func prefixes(list ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, s := range list {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}
