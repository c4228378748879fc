package explain

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Input is a connection, and the world in which it is made.
type Input struct {
	Builder *model.Builder // has all of the objects
	Config  model.Config   // … and was made with this
	Objects Objects

	Source    netip.Addr
	Node      bool   // it is made by a process of this node, whatever its source
	Interface string // by which it comes in, "" if that is not known
	Dest      netip.AddrPort
	Protocol  model.Protocol
}

// NodeAddress returns the source of a connection that this node makes: where the
// destination is loopback, that is, too, and else the node's primary address.
func (in Input) NodeAddress() (netip.Addr, error) {
	family := model.FamilyOf(in.Dest.Addr())
	if in.Dest.Addr().IsLoopback() {
		return family.Loopback(), nil
	}
	for _, n := range in.Objects.Nodes {
		if n.Name != in.Config.NodeName {
			continue
		}
		for _, text := range n.Addresses {
			if a, err := netip.ParseAddr(text); err == nil && model.FamilyOf(a.Unmap()) == family {
				return a.Unmap(), nil
			}
		}
		return netip.Addr{}, fmt.Errorf("the Node %s has no %v address", n.Name, family)
	}
	return netip.Addr{}, fmt.Errorf("there is no Node %s, so its address is not known", in.Config.NodeName)
}

// Objects are the objects as they were given, also those that are not the proxy's
// business.
type Objects struct {
	Services       []model.Service
	EndpointSlices []model.EndpointSlice
	Nodes          []model.Node
	ServiceCIDRs   []model.ServiceCIDR
}

// Builder returns a Builder that has the objects.
func (o Objects) Builder(c model.Config) *model.Builder {
	b := model.NewBuilder(c)
	for _, n := range o.Nodes {
		b.SetNode(n)
	}
	for _, c := range o.ServiceCIDRs {
		b.SetServiceCIDR(c)
	}
	for _, s := range o.Services {
		b.SetService(s)
	}
	for _, s := range o.EndpointSlices {
		b.SetEndpointSlice(s)
	}
	return b
}

// ParseSource reads a client's address.
func ParseSource(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%q is neither an IP address nor the word node", s)
	}
	if a.IsUnspecified() || a.IsMulticast() {
		return netip.Addr{}, fmt.Errorf("nobody connects from %v", a)
	}
	return a.Unmap(), nil
}

// ParseDestination reads ADDRESS:PORT/PROTOCOL. Without a protocol it is TCP.
func ParseDestination(s string) (netip.AddrPort, model.Protocol, error) {
	text, proto, found := strings.Cut(s, "/")
	p, err := model.ParseProtocol(strings.ToUpper(proto))
	if err != nil || found && proto == "" {
		return netip.AddrPort{}, 0, fmt.Errorf("destination %q: %q is none of tcp, udp, sctp", s, proto)
	}
	dest, err := netip.ParseAddrPort(text)
	a := dest.Addr()
	switch {
	case err != nil || a.Zone() != "":
		return netip.AddrPort{}, 0, fmt.Errorf("destination %q is not like 10.96.0.10:80/tcp or [fd00::1]:80/tcp", s)
	case a.IsUnspecified() || a.IsMulticast():
		return netip.AddrPort{}, 0, fmt.Errorf("destination %q: nobody connects to %v", s, a)
	case dest.Port() == 0:
		return netip.AddrPort{}, 0, fmt.Errorf("destination %q: 0 is not between 1 and 65535", s)
	}
	return netip.AddrPortFrom(a.Unmap(), dest.Port()), p, nil
}
