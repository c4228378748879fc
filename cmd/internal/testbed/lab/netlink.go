package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Route is a route of either family.
type Route struct {
	Dst         netip.Prefix
	Link        string     // name of the interface; not for unreachable routes
	Via         netip.Addr // gateway; the zero Addr for destinations on the link
	Source      netip.Addr // preferred source; the zero Addr lets the kernel choose
	OnLink      bool       // the gateway is on the link though no route says so
	Unreachable bool       // connecting fails with EHOSTUNREACH
}

// Sysctl sets a value below /proc/sys/net as the namespace sees it. The name
// has slashes, because names of interfaces may have dots: net/ipv4/ip_forward.
func (ns *Namespace) Sysctl(name, value string) error {
	return ns.Do(func() error { return setSysctl(name, value) })
}

// setSysctl is Sysctl inside: a file below /proc/sys/net belongs to the namespace of the thread that opens it, also if
// another one mounted /proc.
func setSysctl(name, value string) error {
	return os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0)
}

// Up sets a link up.
func (ns *Namespace) Up(link string) error {
	return ns.configure("set link "+link+" up", link, netlink.LinkSetUp)
}

// AddAddr adds an address to a link that is up. When it returns, the address
// is usable; for IPv6, there is no duplicate address detection.
func (ns *Namespace) AddAddr(link string, addr netip.Prefix) error {
	return ns.addAddr(link, addr, 0)
}

// AddAlias adds a further address, such as a load balancer's: packets to it
// arrive, but the kernel does not choose it as a source by itself.
func (ns *Namespace) AddAlias(link string, addr netip.Addr) error {
	// For IPv4 the first address is preferred, for IPv6 the newest that is not
	// deprecated. A valid lifetime without a preferred one makes it deprecated.
	const day = 24 * 60 * 60
	return ns.addAddr(link, netip.PrefixFrom(addr, addr.BitLen()), day)
}

// addAddr adds an address that is deprecated for some seconds or, if they are 0,
// preferred for good.
func (ns *Namespace) addAddr(link string, addr netip.Prefix, deprecated int) error {
	return ns.configure("add address "+addr.String()+" to "+link, link, func(l netlink.Link) error {
		a := &netlink.Addr{IPNet: ipNet(addr)}
		if addr.Addr().Is4() {
			return netlink.AddrAdd(l, a)
		}
		a.Flags = unix.IFA_F_NODAD
		a.ValidLft = deprecated
		if err := netlink.AddrAdd(l, a); err != nil {
			return err
		}
		// Even without duplicate address detection it is the kernel's worker
		// for that which makes the address local (addrconf_dad_completed),
		// some time after AddrAdd. Packets that come before are lost.
		return await(func() (bool, error) {
			routes, err := netlink.RouteGet(a.IP)
			if errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH) {
				return false, nil
			}
			return len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL, err
		})
	})
}

// AddNeighbor adds a permanent neighbour entry to a link. Without it the first
// packet waits for an answer by ARP or neighbour discovery.
func (ns *Namespace) AddNeighbor(link string, addr netip.Addr, mac net.HardwareAddr) error {
	return ns.configure("add neighbour "+addr.String()+" to "+link, link, func(l netlink.Link) error {
		return netlink.NeighSet(&netlink.Neigh{
			LinkIndex:    l.Attrs().Index,
			State:        netlink.NUD_PERMANENT,
			IP:           addr.AsSlice(),
			HardwareAddr: mac,
		})
	})
}

// AddRoute adds a route to the main table.
func (ns *Namespace) AddRoute(r Route) error {
	route := &netlink.Route{Dst: ipNet(r.Dst), Gw: r.Via.AsSlice(), Src: r.Source.AsSlice()}
	if r.OnLink {
		route.Flags = int(netlink.FLAG_ONLINK)
	}
	step := fmt.Sprintf("add route %+v", r)
	if r.Unreachable {
		route.Type = unix.RTN_UNREACHABLE
		return ns.configure(step, "", func(netlink.Link) error { return netlink.RouteAdd(route) })
	}
	if !r.Via.IsValid() && r.Dst.Addr().Is4() {
		// A gateway may only be found by a route of narrower scope than its own.
		route.Scope = netlink.SCOPE_LINK
	}
	return ns.configure(step, r.Link, func(l netlink.Link) error {
		route.LinkIndex = l.Attrs().Index
		return netlink.RouteAdd(route)
	})
}

// RemoveLink deletes a link with its addresses and routes, and its peer.
func (ns *Namespace) RemoveLink(link string) error {
	return ns.configure("remove link "+link, link, netlink.LinkDel)
}

// mac returns a link's hardware address.
func (ns *Namespace) mac(link string) (net.HardwareAddr, error) {
	var mac net.HardwareAddr
	err := ns.configure("read hardware address of "+link, link, func(l netlink.Link) error {
		mac = l.Attrs().HardwareAddr
		return nil
	})
	return mac, err
}

// Connect joins two namespaces by a pair of links and sets both up.
func Connect(a *Namespace, aLink string, b *Namespace, bLink string) error {
	err := b.withFD(func(fd int) error {
		veth := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: bLink, PeerNamespace: netlink.NsFd(fd)}
		veth.Name = aLink
		return a.configure("add link "+aLink, "", func(netlink.Link) error { return netlink.LinkAdd(veth) })
	})
	if err != nil {
		return fmt.Errorf("join %s and %s: %w", a.name, b.name, err)
	}
	if err := a.Up(aLink); err != nil {
		return err
	}
	if err := b.Up(bLink); err != nil {
		return err
	}
	// The end that was up first had no carrier then. It loses what it sends
	// until the kernel's link watch, another worker, has seen the carrier.
	return a.configure("await carrier", aLink, func(netlink.Link) error {
		return await(func() (bool, error) {
			l, err := netlink.LinkByName(aLink)
			return err == nil && l.Attrs().OperState == netlink.OperUp, err
		})
	})
}

// await calls ok until it returns true or an error, for a few seconds at most.
// It is for work that the kernel does asynchronously, usually within
// microseconds.
func await(ok func() (bool, error)) error {
	ticks := time.NewTicker(100 * time.Microsecond)
	defer ticks.Stop()
	limit := time.After(5 * time.Second)
	for {
		if done, err := ok(); done || err != nil {
			return err
		}
		select {
		case <-ticks.C:
		case <-limit:
			return fmt.Errorf("wait for the kernel: %w", context.DeadlineExceeded)
		}
	}
}

// configure calls fn inside the namespace with the link of that name, unless the name is empty, and says in the error
// what the step was.
func (ns *Namespace) configure(step, link string, fn func(netlink.Link) error) error {
	err := ns.Do(func() (err error) {
		var l netlink.Link
		if link != "" {
			if l, err = netlink.LinkByName(link); err != nil {
				return err
			}
		}
		return fn(l)
	})
	if err != nil {
		return fmt.Errorf("%s in %s: %w", step, ns.name, err)
	}
	return nil
}

// FlushConntrack deletes all entries of the connection tracking table of the namespace.
func (ns *Namespace) FlushConntrack() error {
	return ns.Do(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) })
}

// ipNet converts to netlink's type.
func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
