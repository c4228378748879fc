package others

import (
	"slices"
	"strings"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/nft"
)

// Place is a chain.
type Place struct {
	Family string `json:"family"` // of the table: ip, ip6, inet, bridge, netdev
	Table  string `json:"table"`
	Chain  string `json:"chain"`
}

func (p Place) String() string { return "table " + p.Family + " " + p.Table + ", chain " + p.Chain }

// TracerPrefix begins the names of tables of nft/tracer.
const TracerPrefix = "vmapd-trace-"

// IsTracers reports whether a table is one of a tracer.
func (p Place) IsTracers() bool { return strings.HasPrefix(p.Table, TracerPrefix) }

// IsVmapds reports whether a chain is one of the backends nftables, iptables and ipvs.
func (p Place) IsVmapds() bool {
	return (p.Family == "ip" || p.Family == "ip6") && (p.Table == nft.TableName || strings.HasPrefix(p.Chain, "VMAPD-"))
}

// A Hook is a stop on a packet's path through the kernel.
type Hook string

// The hooks.
const (
	Prerouting  Hook = "prerouting"
	Input       Hook = "input"
	Forward     Hook = "forward"
	Output      Hook = "output"
	Postrouting Hook = "postrouting"
)

// HookNumber is a hook with the kernel's number.
type HookNumber struct {
	Hook   Hook
	Number nftables.ChainHook
	Start  bool // a packet's path begins here
}

// Hooks are all of them, in the order of a packet's path.
var Hooks = [...]HookNumber{
	{Prerouting, unix.NF_INET_PRE_ROUTING, true},
	{Input, unix.NF_INET_LOCAL_IN, false},
	{Forward, unix.NF_INET_FORWARD, false},
	{Output, unix.NF_INET_LOCAL_OUT, true},
	{Postrouting, unix.NF_INET_POST_ROUTING, false},
}

// AtConntrack is the priority of connection tracking (NF_IP_PRI_CONNTRACK).
const AtConntrack = -200

var families = [...]string{
	unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_INET: "inet", unix.NFPROTO_BRIDGE: "bridge",
	unix.NFPROTO_NETDEV: "netdev", unix.NFPROTO_ARP: "arp",
}

// FamilyName returns the name of a family of tables by its number (NFPROTO_IPV4, say).
func FamilyName(family byte) string {
	if int(family) < len(families) && families[family] != "" {
		return families[family]
	}
	return "unknown"
}

// familyNumber returns the number of a family, and that for all families for "".
func familyNumber(name string) byte { return byte(slices.Index(families[:], name)) }
