package userspace

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// DeviceName is the name of the device with the addresses of Services. All that it has are ours, also after a restart.
const DeviceName = "vmapd-services"

// Interface is that device: a dummy one or, where the kernel has none, a bridge without ports.
type Interface struct{ link netlink.Link }

// OpenInterface finds or creates the device, without ARP, as no packet is ever sent by it, and up, as IPv6
// addresses need. An error that is unix.EPERM says that the process lacks CAP_NET_ADMIN.
func OpenInterface() (*Interface, error) {
	a := netlink.NewLinkAttrs()
	a.Name = DeviceName
	err := netlink.LinkAdd(&netlink.Dummy{LinkAttrs: a})
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = netlink.LinkAdd(&netlink.Bridge{LinkAttrs: a})
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("add the device %s: %w", DeviceName, err)
	}
	link, err := netlink.LinkByName(DeviceName)
	if err == nil {
		err = errors.Join(netlink.LinkSetARPOff(link), netlink.LinkSetUp(link))
	}
	if err != nil {
		return nil, fmt.Errorf("set up the device %s: %w", DeviceName, err)
	}
	return &Interface{link}, nil
}

// Set implements [Device]. The kernel's own link-local address stays. The error has the first ten that failed.
func (i *Interface) Set(addrs map[netip.Addr]struct{}) error {
	list, err := netlink.AddrList(i.link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("read the addresses of the device %s: %w", DeviceName, err)
	}
	var errs []error
	note := func(what string, a netip.Addr, err error) {
		if err != nil && len(errs) < 10 {
			err = fmt.Errorf("%s the address %v: %w", what, a, err)
			errs = append(errs, &model.FamilyError{Family: model.FamilyOf(a), Err: err})
		}
	}
	missing := maps.Clone(addrs)
	for _, has := range list {
		a, _ := netip.AddrFromSlice(has.IP)
		if a = a.Unmap(); a.IsLinkLocalUnicast() {
			continue
		}
		if _, ok := addrs[a]; !ok {
			note("remove", a, netlink.AddrDel(i.link, addressOf(a)))
		}
		delete(missing, a)
	}
	for a := range missing {
		note("add", a, i.add(a))
	}
	return errors.Join(errs...)
}

// add adds an address, and waits until packets to it arrive: the kernel adds the route of IPv6 in the background
// (addrconf_dad_work).
func (i *Interface) add(a netip.Addr) error {
	with := addressOf(a)
	with.Flags = unix.IFA_F_NODAD // every node has the same address
	if err := netlink.AddrAdd(i.link, with); err != nil {
		return err
	}
	for range 1000 {
		if routes, err := netlink.RouteGet(a.AsSlice()); err == nil && routes[0].Type == unix.RTN_LOCAL {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return errors.New("the kernel has no route to it")
}

func addressOf(a netip.Addr) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}}
}

// interfaceTo returns the name of the interface by which the node reaches an address; "" if there is none.
// A pod's packets come in by the same.
func interfaceTo(a netip.Addr) string {
	if routes, err := netlink.RouteGet(a.AsSlice()); err == nil {
		if link, err := netlink.LinkByIndex(routes[0].LinkIndex); err == nil {
			return link.Attrs().Name
		}
	}
	return ""
}
