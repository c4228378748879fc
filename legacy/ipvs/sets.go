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

// The ipsets. One whose type changes in a later version must get another name.
const (
	// Addrs are the addresses that are the node's only for the sake of Services: what no
	// Service has there is refused, whatever listens on the node.
	Addrs SetName = "ADDRS"
	// Services are the addresses and ports that have a virtual server.
	Services SetName = "SERVICES"
	// Refuse are those among them whose new connections are refused, Discard those where
	// connections from outside are dropped.
	Refuse  SetName = "REJECT"
	Discard SetName = "DROP"
	// Inside says which mark connections from inside get, to be sent elsewhere than those
	// from outside.
	Inside SetName = "INSIDE"
	// Restricted are for the sources in Sources alone.
	Restricted SetName = "RESTRICTED"
	Sources    SetName = "SOURCES"
	// Masquerade are where all sources are replaced, MasqueradeOutside where those are
	// that are no pods.
	Masquerade        SetName = "MASQUERADE"
	MasqueradeOutside SetName = "MASQUERADE-OUTSIDE"
	// Hairpin has each endpoint on this node with itself.
	Hairpin SetName = "HAIRPIN"
	// Endpoints are those whose packets are dropped if they belong to no connection.
	Endpoints SetName = "ENDPOINTS"
)

// SetNames are all ipsets.
var SetNames = []SetName{
	Addrs, Services, Refuse, Discard, Inside, Restricted, Sources, Masquerade, MasqueradeOutside, Hairpin, Endpoints,
}

// In returns the name in the kernel, which has at most 31 characters.
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

// HasMarks reports whether its entries have packet marks (ipset's extension skbinfo).
func (n SetName) HasMarks() bool { return n == Inside }

// maxEntries is how many entries a set takes; ipset's own default is 65536, which the
// endpoints of a large cluster exceed. It costs nothing until they are there.
const maxEntries = 1 << 21

// Declaration is how ipset create takes it.
func (n SetName) Declaration(f model.Family) string {
	family := "inet"
	if f == model.IPv6 {
		family = "inet6"
	}
	text := fmt.Sprintf("%s %s family %s maxelem %d", n.In(f), n.Type(), family, maxEntries)
	if n.HasMarks() {
		text += " skbinfo"
	}
	return text
}

// Entry is an entry of an ipset. What its type does not have is the zero value.
type Entry struct {
	Addr     netip.Addr
	Protocol model.Protocol
	Port     uint16
	Net      netip.Prefix // Sources: the client; Hairpin: the address again
}

// String is how ipset takes it.
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

func vipEntry(k Key) Entry { return Entry{Addr: k.Addr, Protocol: k.Protocol, Port: k.Port} }

func hairpinEntry(a netip.Addr) Entry {
	return Entry{Addr: a, Net: netip.PrefixFrom(a, a.BitLen())}
}

// halves returns a range as the hash:…net types take it: everything is two halves
// there, since they know no prefix of size 0.
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
