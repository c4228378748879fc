package userspace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// DeviceName is the name of the dummy device with the addresses of Services.
const DeviceName = "vmapd-services"

// The marks of our addresses on the loopback interface: a label, which IPv6 does not have, and a
// protocol (IFA_PROTO, Linux 5.18), as a route has one.
const (
	loopbackName = "lo"
	ourLabel     = "lo:vmapd"
	ourProtocol  = 'v'
	ifaProto     = 11
)

// Interface is an interface of this network namespace with addresses of Services: a dummy device of our
// own or, where the kernel has none, the loopback interface, where our addresses are marked. So they are
// known after a restart. Any goroutine may use it.
type Interface struct {
	Name  string
	index int

	mu    sync.Mutex
	addrs map[netip.Addr]struct{}
}

// OpenInterface finds or creates the interface. An error that is unix.EPERM says that the process lacks
// CAP_NET_ADMIN.
func OpenInterface() (*Interface, error) {
	i := &Interface{Name: DeviceName}
	link, err := createDummy()
	if errors.Is(err, unix.EOPNOTSUPP) {
		i.Name = loopbackName
		if link, err = netlink.LinkByName(i.Name); err == nil {
			err = netlink.LinkSetUp(link) // fails without the capability
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open the interface %s: %w", i.Name, err)
	}
	i.index = link.Attrs().Index
	if _, err := i.Addrs(); err != nil {
		return nil, fmt.Errorf("list the addresses of %s: %w", i.Name, err)
	}
	return i, nil
}

// createDummy leaves the device without ARP: no packet is ever sent by it. It is up, as IPv6
// addresses need.
func createDummy() (netlink.Link, error) {
	a := netlink.NewLinkAttrs()
	a.Name = DeviceName
	if err := netlink.LinkAdd(&netlink.Dummy{LinkAttrs: a}); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, err
	}
	link, err := netlink.LinkByName(DeviceName)
	if err != nil {
		return nil, err
	}
	if link.Type() != "dummy" {
		return nil, fmt.Errorf("there is a device of that name, of type %s", link.Type())
	}
	if err := netlink.LinkSetARPOff(link); err != nil {
		return nil, err
	}
	return link, netlink.LinkSetUp(link)
}

// Has reports whether an address is on the interface for a Service, so that it is none of the node's.
func (i *Interface) Has(a netip.Addr) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	_, ok := i.addrs[a]
	return ok
}

// Addrs reads our addresses.
func (i *Interface) Addrs() (map[netip.Addr]struct{}, error) {
	addrs := map[netip.Addr]struct{}{}
	for _, f := range model.Families {
		request := nl.NewNetlinkRequest(unix.RTM_GETADDR, unix.NLM_F_DUMP)
		request.AddData(nl.NewIfAddrmsg(addressFamily(f)))
		messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWADDR)
		if err != nil {
			return nil, err
		}
		for _, m := range messages {
			if a, ok := i.ours(m); ok {
				addrs[a] = struct{}{}
			}
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.addrs = addrs
	return maps.Clone(addrs), nil
}

// ours returns the address of a message, if it is one of ours. The kernel adds link-local ones.
func (i *Interface) ours(message []byte) (a netip.Addr, ok bool) {
	header := nl.DeserializeIfAddrmsg(message)
	if int(header.Index) != i.index {
		return a, false
	}
	attrs, err := nl.ParseRouteAttr(message[header.Len():])
	if err != nil {
		return a, false
	}
	marked := i.Name == DeviceName
	for _, attr := range attrs {
		switch attr.Attr.Type {
		case unix.IFA_ADDRESS:
			if !a.IsValid() {
				a, _ = netip.AddrFromSlice(attr.Value)
			}
		case unix.IFA_LOCAL:
			a, _ = netip.AddrFromSlice(attr.Value)
		case unix.IFA_LABEL:
			marked = marked || string(bytes.TrimRight(attr.Value, "\x00")) == ourLabel
		case ifaProto:
			marked = marked || slices.Equal(attr.Value, []byte{ourProtocol})
		}
	}
	return a, marked && a.IsValid() && !a.IsLinkLocalUnicast() && !a.IsLoopback()
}

// Add adds an address. It is no error if it is there.
func (i *Interface) Add(a netip.Addr) error {
	i.mu.Lock()
	i.addrs[a] = struct{}{} // before anybody can see it
	i.mu.Unlock()
	err := i.change(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, a)
	switch {
	case errors.Is(err, unix.EEXIST):
		return nil
	case err == nil && a.Is6() && i.Name != DeviceName:
		err = i.checkMark(a)
	}
	if err == nil && a.Is6() {
		err = awaitRoute(a)
	}
	if err != nil {
		i.mu.Lock()
		delete(i.addrs, a)
		i.mu.Unlock()
	}
	return err
}

// awaitRoute waits until packets to an IPv6 address arrive. The kernel adds the route in the background
// (addrconf_dad_work), so that a datagram right after the address would be lost.
func awaitRoute(a netip.Addr) error {
	for end := time.Now().Add(time.Second); ; time.Sleep(100 * time.Microsecond) {
		routes, err := netlink.RouteGet(a.AsSlice())
		if err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL {
			return nil
		}
		if time.Now().After(end) {
			return errors.Join(errors.New("the kernel has no route to it"), err)
		}
	}
}

// checkMark takes an address away again that would not be known as ours.
func (i *Interface) checkMark(a netip.Addr) error {
	addrs, err := i.Addrs()
	if err != nil {
		return err
	}
	if _, ok := addrs[a]; ok {
		return nil
	}
	return errors.Join(errors.New("the kernel has neither dummy devices nor marks of IPv6 addresses (Linux 5.18)"), i.Remove(a))
}

// Remove removes an address. It is no error if it is not there.
func (i *Interface) Remove(a netip.Addr) error {
	if err := i.change(unix.RTM_DELADDR, 0, a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.addrs, a)
	return nil
}

func (i *Interface) change(kind, flags int, a netip.Addr) error {
	request := nl.NewNetlinkRequest(kind, flags|unix.NLM_F_ACK)
	m := nl.NewIfAddrmsg(addressFamily(model.FamilyOf(a)))
	m.Index, m.Prefixlen = uint32(i.index), uint8(a.BitLen())
	request.AddData(m)
	request.AddData(nl.NewRtAttr(unix.IFA_LOCAL, a.AsSlice()))
	request.AddData(nl.NewRtAttr(unix.IFA_ADDRESS, a.AsSlice()))
	if kind == unix.RTM_NEWADDR {
		if i.Name != DeviceName {
			request.AddData(nl.NewRtAttr(ifaProto, []byte{ourProtocol}))
		}
		if a.Is4() && i.Name != DeviceName {
			request.AddData(nl.NewRtAttr(unix.IFA_LABEL, nl.ZeroTerminated(ourLabel)))
		}
		if a.Is6() { // every node has the same address
			request.AddData(nl.NewRtAttr(unix.IFA_FLAGS, binary.NativeEndian.AppendUint32(nil, unix.IFA_F_NODAD)))
		}
	}
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

func addressFamily(f model.Family) int {
	return [...]int{model.IPv4: unix.AF_INET, model.IPv6: unix.AF_INET6}[f]
}

// Found returns how many addresses of ours there are. Our device counts as one, too. It changes nothing.
func Found() (n int, err error) {
	if _, err := net.InterfaceByName(DeviceName); err == nil {
		n++
	}
	if lo, err := net.InterfaceByName(loopbackName); err == nil { // else there can't be any
		addrs, err := (&Interface{Name: loopbackName, index: lo.Index}).Addrs()
		return n + len(addrs), err
	}
	return n, nil
}

// RemoveAddresses removes our device, and our addresses of the loopback interface. It is no error if
// there are none.
func RemoveAddresses() error {
	var errs []error
	link, err := netlink.LinkByName(DeviceName)
	switch {
	case errors.As(err, new(netlink.LinkNotFoundError)):
	case err == nil && link.Type() != "dummy": // somebody else's
	case err == nil:
		errs = append(errs, netlink.LinkDel(link))
	default:
		errs = append(errs, err)
	}
	if lo, err := net.InterfaceByName(loopbackName); err == nil {
		i := &Interface{Name: loopbackName, index: lo.Index}
		addrs, err := i.Addrs()
		errs = append(errs, err)
		for a := range addrs {
			errs = append(errs, i.Remove(a))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove the addresses of Services: %w", err)
	}
	return nil
}
