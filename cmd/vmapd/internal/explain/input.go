package explain

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Input is a connection, with the objects and the configuration that decide about it.
type Input struct {
	Builder *model.Builder // of all objects
	Config  model.Config   // of the builder
	Objects Objects

	model.Connection // Explain sets Node if the source is the node's
}

// NodeAddress returns the source of a connection that this node makes: a loopback address if the
// destination is one, and otherwise the node's primary address.
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

// Objects are all objects, also those that the proxy ignores.
type Objects struct {
	Services       []model.Service
	EndpointSlices []model.EndpointSlice
	Nodes          []model.Node
	ServiceCIDRs   []model.ServiceCIDR
}

// Builder returns a Builder with the objects.
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
		return netip.Addr{}, fmt.Errorf("want an IP address or \"node\"; got %q", s)
	}
	if a.IsUnspecified() || a.IsMulticast() {
		return netip.Addr{}, fmt.Errorf("%v cannot be the source of a connection", a)
	}
	return a.Unmap(), nil
}

// ParseDestination reads ADDRESS:PORT[/PROTOCOL]. The default protocol is TCP.
func ParseDestination(s string) (netip.AddrPort, model.Protocol, error) {
	text, proto, found := strings.Cut(s, "/")
	p, err := model.ParseProtocol(strings.ToUpper(proto))
	if err != nil || found && proto == "" {
		return netip.AddrPort{}, 0, fmt.Errorf("want protocol tcp, udp or sctp; got %q in %q", proto, s)
	}
	dest, err := netip.ParseAddrPort(text)
	a := dest.Addr()
	switch {
	case err != nil || a.Zone() != "":
		return netip.AddrPort{}, 0, fmt.Errorf("want ADDRESS:PORT[/PROTOCOL], for example 10.96.0.10:80/tcp or [fd00::1]:80/tcp; got %q", s)
	case a.IsUnspecified() || a.IsMulticast():
		return netip.AddrPort{}, 0, fmt.Errorf("destination %q: %v cannot be the destination of a connection", s, a)
	case dest.Port() == 0:
		return netip.AddrPort{}, 0, fmt.Errorf("destination %q: port 0 is not between 1 and 65535", s)
	}
	return netip.AddrPortFrom(a.Unmap(), dest.Port()), p, nil
}
