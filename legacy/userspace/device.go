package userspace

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/legacy/device"
	"github.com/vmapd/vmapd/model"
)

// DeviceName is the name of the device with the addresses of Services. All that it has are ours, also after a restart.
const DeviceName = "vmapd-services"

// OpenDevice finds or creates the device, up, as IPv6 addresses need, and returns a function for Options.SetAddresses.
// An error that is unix.EPERM says that the process lacks CAP_NET_ADMIN.
func OpenDevice() (set func(addrs map[netip.Addr]bool) error, err error) {
	link, err := device.Create(DeviceName)
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		return nil, err
	}
	return func(addrs map[netip.Addr]bool) error { return setAddresses(link, addrs) }, nil
}

// setAddresses adds what a device lacks, and deletes all others. The error has the first ten that failed; they do not
// keep the others from it.
func setAddresses(link netlink.Link, addrs map[netip.Addr]bool) error {
	has, err := device.Addrs(link, unix.AF_UNSPEC)
	if err != nil {
		return err
	}
	var errs []error
	change := func(addrs, unless map[netip.Addr]bool, what string, change func(netlink.Link, netip.Addr) error) {
		for a := range addrs {
			if unless[a] {
				continue
			}
			if err := change(link, a); err != nil && len(errs) < 10 {
				err = fmt.Errorf("%s the address %v: %w", what, a, err)
				errs = append(errs, &model.FamilyError{Family: model.FamilyOf(a), Err: err})
			}
		}
	}
	change(has, addrs, "remove", device.Delete)
	change(addrs, has, "add", add)
	return errors.Join(errs...)
}

// add adds an address, and waits until packets to it arrive: the kernel adds the route of IPv6 in the background
// (addrconf_dad_work).
func add(link netlink.Link, a netip.Addr) error {
	if err := device.Add(link, a); err != nil {
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
