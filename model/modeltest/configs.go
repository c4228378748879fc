package modeltest

import (
	"net/netip"
	"slices"
	"time"

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
		LocalPods: model.LocalPods{ClusterCIDRs: prefixes("10.0.0.0/8", "fd00:10::/64")}, ConnectionRetry: true,
	},
	{
		NodeName: NodeName, TableSize: TableSize, NodePortAddresses: model.NodePortAddresses{Primary: true, All: true},
		LocalPods: model.LocalPods{Mode: model.ByNodeCIDR}, Algorithm: model.Maglev, DropInvalid: true, ConnectionRetry: true,
	},
	{
		NodeName: NodeName, TableSize: TableSize, NodePortAddresses: model.NodePortAddresses{Primary: true},
		LocalPods: model.LocalPods{Mode: model.ByBridge, Interface: PodBridge}, Algorithm: model.MaglevPort,
		ConnectionRetry: true,
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

// ModelConfigs are Configs, and some for what the model decides alone: no backend depends on it.
//
//nolint:gochecknoglobals // nobody changes it
var ModelConfigs = slices.Concat(Configs, []model.Config{
	{
		NodeName: NodeName, TableSize: TableSize, PrimaryAddress: netip.MustParseAddr("192.168.0.3"),
		NodePortAddresses: model.NodePortAddresses{
			Primary: true, CIDRs: prefixes("10.0.0.0/8"), Unlisted: [2]bool{model.IPv6: true},
		},
		ExternalAddresses: model.ExternalAddresses{Ranges: prefixes("192.168.99.0/24", "fd00::/8"), InServiceCIDRs: true},
		ConnectionGrace:   time.Minute,
		Budgets:           model.Budgets{Ports: 2, Endpoints: 3, Entries: 20, Problems: 2},
	},
	{
		NodeName: NodeName, TableSize: TableSize,
		NodePortAddresses: model.NodePortAddresses{Primary: true, Localhost: [2]bool{true, true}},
		ExternalAddresses: model.ExternalAddresses{NoExternalIPs: true, NoNodeAddresses: true},
	},
})

func prefixes(list ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, s := range list {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}
