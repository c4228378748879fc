// Package device holds addresses of Services on a device of the node, for IPVS and for listeners in user space.
package device

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Find returns nil if the device does not exist.
func Find(name string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	switch {
	case errors.As(err, new(netlink.LinkNotFoundError)):
		return nil, nil //nolint:nilnil // a missing device is no error
	case err != nil:
		return nil, fmt.Errorf("look for the device %s: %w", name, err)
	}
	return link, nil
}

// Create returns a dummy device or, where the kernel has none, a bridge without ports. It is without ARP, as no packet
// is ever sent by it, and as it was if it exists. An error that is unix.EPERM says that the process lacks
// CAP_NET_ADMIN.
func Create(name string) (netlink.Link, error) {
	a := netlink.NewLinkAttrs()
	a.Name = name
	err := netlink.LinkAdd(&netlink.Dummy{LinkAttrs: a})
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = netlink.LinkAdd(&netlink.Bridge{LinkAttrs: a})
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("add the device %s: %w", name, err)
	}
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetARPOff(link)
	}
	if err != nil {
		return nil, fmt.Errorf("set up the device %s: %w", name, err)
	}
	return link, nil
}

// Remove removes a device with its addresses. It is no error if there is none.
func Remove(name string) error {
	link, err := Find(name)
	if link == nil || err != nil {
		return err
	}
	if err := netlink.LinkDel(link); err != nil {
		return fmt.Errorf("remove the device %s: %w", name, err)
	}
	return nil
}

// Addrs returns the addresses of a device, of an address family or all (unix.AF_UNSPEC), but not the link-local one
// that the kernel adds to a device that is up.
func Addrs(link netlink.Link, family int) (map[netip.Addr]bool, error) {
	list, err := netlink.AddrList(link, family)
	if err != nil {
		return nil, fmt.Errorf("list addresses of %s: %w", link.Attrs().Name, err)
	}
	addrs := map[netip.Addr]bool{}
	for _, l := range list {
		a, ok := netip.AddrFromSlice(l.IP)
		if a = a.Unmap(); ok && !a.IsLinkLocalUnicast() {
			addrs[a] = true
		}
	}
	return addrs, nil
}

// Add adds an address. It is no error if the device has it.
func Add(link netlink.Link, a netip.Addr) error {
	with := addressOf(a)
	if a.Is6() {
		with.Flags = unix.IFA_F_NODAD // every node has the same address
	}
	return netlink.AddrReplace(link, with)
}

// Delete deletes an address. It is no error if the device does not have it.
func Delete(link netlink.Link, a netip.Addr) error {
	if err := netlink.AddrDel(link, addressOf(a)); !errors.Is(err, unix.EADDRNOTAVAIL) {
		return err
	}
	return nil
}

func addressOf(a netip.Addr) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}}
}
