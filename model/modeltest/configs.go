package modeltest

import (
	"net/netip"

	"github.com/vmapd/vmapd/model"
)

// TableSize is the size of lookup tables in random tests, which have thousands of rulesets.
const TableSize = 13

// Configs are the configurations of random tests, which use them in turn.
var Configs = []model.Config{
	Config(),
	{NodeName: NodeName, TableSize: TableSize, NodePortAddresses: model.NodePortAddresses{All: true}, MasqueradeAll: true},
	{
		NodeName: NodeName, TableSize: TableSize, NodePortAddresses: model.NodePortAddresses{Primary: true},
		LocalPods: model.LocalPods{ClusterCIDRs: prefixes("10.0.0.0/8", "fd00:10::/64")},
	},
	{
		NodeName: NodeName, TableSize: TableSize, NodePortAddresses: model.NodePortAddresses{Primary: true, All: true},
		LocalPods: model.LocalPods{Mode: model.ByNodeCIDR}, Algorithm: model.Maglev, DropInvalid: true,
	},
	{
		NodeName: NodeName, TableSize: TableSize, NodePortAddresses: model.NodePortAddresses{Primary: true},
		LocalPods: model.LocalPods{Mode: model.ByBridge, Interface: PodBridge}, Algorithm: model.MaglevPort,
	},
	{
		NodeName: NodeName, TableSize: TableSize, NodePortAddresses: model.NodePortAddresses{Primary: true},
		LocalPods: model.LocalPods{Mode: model.ByInterfacePrefix, Interface: "cali"}, DropInvalid: true,
	},
	{
		NodeName: NodeName, TableSize: TableSize, NodePortAddresses: model.NodePortAddresses{Primary: true},
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
