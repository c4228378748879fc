package ipvs

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// SetName names an ipset. In the kernel, it has a family's prefix.
type SetName string

// The ipsets. If the type of a set changes in a later version, its name must change as well.
const (
	// Addrs has the addresses that the node has only for Services. Connections to ports there
	// that no Service has are refused, even if a process of the node listens.
	Addrs SetName = "ADDRS"
	// Services has the addresses and ports of virtual servers.
	Services SetName = "SERVICES"
	// Refuse has those among them with new connections refused, Discard those with new
	// connections dropped, and DiscardOutside those for which that spares pods and the node.
	Refuse         SetName = "REJECT"
	Discard        SetName = "DROP"
	DiscardOutside SetName = "DROP-OUTSIDE"
	// Restricted has the addresses and ports that accept only clients in Sources.
	Restricted SetName = "RESTRICTED"
	Sources    SetName = "SOURCES"
	// Masquerade has the addresses and ports with all clients masqueraded, MasqueradeOutside those with clients
	// masqueraded unless they are pods, MasqueradeNode those for which only the node is.
	Masquerade        SetName = "MASQUERADE"
	MasqueradeOutside SetName = "MASQUERADE-OUTSIDE"
	MasqueradeNode    SetName = "MASQUERADE-NODE"
	// Hairpin has each endpoint that may connect to itself by this node, with itself.
	Hairpin SetName = "HAIRPIN"
)

// SetNames are all ipsets.
var SetNames = []SetName{
	Addrs, Services, Refuse, Discard, DiscardOutside, Restricted, Sources,
	Masquerade, MasqueradeOutside, MasqueradeNode, Hairpin,
}

// In returns the name in the kernel, of at most 31 characters.
func (n SetName) In(f model.Family) string {
	if f == model.IPv6 {
		return "VMAPD6-" + string(n)
	}
	return "VMAPD-" + string(n)
}

// Type is the type of the set, as ipset spells it.
func (n SetName) Type() string {
	switch n {
	case Addrs:
		return "hash:ip"
	case Sources:
		return "hash:ip,port,net"
	case Hairpin:
		return "hash:net,net"
	default:
		return "hash:ip,port"
	}
}

// MaxEntries is the capacity of a set. ipset's own default of 65536 is less than the endpoints of
// a large cluster. Unused capacity costs nothing.
const MaxEntries = 1 << 21

// Declaration returns the arguments of ipset create.
func (n SetName) Declaration(f model.Family) string {
	family := "inet"
	if f == model.IPv6 {
		family = "inet6"
	}
	return fmt.Sprintf("%s %s family %s maxelem %d", n.In(f), n.Type(), family, MaxEntries)
}

// An Entry of an ipset has zero values for parts that the set's type does not have.
type Entry struct {
	Addr     netip.Addr
	Protocol model.Protocol
	Port     uint16
	Net      netip.Prefix // Sources: the client; Hairpin: the address again
}

// String returns the entry in ipset's syntax.
func (e Entry) String() string {
	text := e.Addr.String()
	if e.Protocol != 0 {
		text += fmt.Sprintf(",%v:%d", e.Protocol, e.Port)
	}
	if e.Net.IsValid() {
		text += "," + strings.TrimSuffix(e.Net.String(), fmt.Sprintf("/%d", e.Addr.BitLen()))
	}
	return text
}

func compareEntries(a, b Entry) int {
	return cmp.Or(
		a.Addr.Compare(b.Addr), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port),
		a.Net.Addr().Compare(b.Net.Addr()), cmp.Compare(a.Net.Bits(), b.Net.Bits()),
	)
}

func hairpinEntry(a netip.Addr) Entry {
	return Entry{Addr: a, Net: netip.PrefixFrom(a, a.BitLen())}
}

// halves returns a range for the hash:…net types. They have no prefix of length 0, so the range
// of all addresses becomes two halves.
func halves(p netip.Prefix) []netip.Prefix {
	if p.Bits() > 0 {
		return []netip.Prefix{p}
	}
	upper := netip.MustParseAddr("128.0.0.0")
	if p.Addr().Is6() {
		upper = netip.MustParseAddr("8000::")
	}
	return []netip.Prefix{netip.PrefixFrom(p.Addr(), 1), netip.PrefixFrom(upper, 1)}
}
