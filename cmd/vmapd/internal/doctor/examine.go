package doctor

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/legacy/userspace"
	"github.com/vmapd/vmapd/model"
)

// Examine returns what the node alone shows. It changes nothing. With rules, those of other programs are read, too.
func Examine(w Wants, rules bool) Host {
	h := Host{NetAdmin: HasNetAdmin(), Kernel: kernelRelease(), Sysctls: map[string]string{}}
	h.Interfaces = interfaces()
	h.Bridges = bridges()
	for _, file := range Sysctls(h.Interfaces) {
		if b, err := os.ReadFile(filepath.Join("/proc/sys", file)); err == nil {
			h.Sysctls[file] = strings.TrimSpace(string(b))
		}
	}
	for _, f := range model.Families {
		h.DefaultRoutes[f] = defaultRoute(f)
	}
	h.Conntrack = conntrackUse()
	h.Unset = nodesetup.Unset(nodesetup.Options{}, w.Conntrack)
	h.ReadOnly = isReadOnly("/proc/sys")
	if h.NetAdmin {
		readChains(&h, rules)
	}
	return h
}

// HasNetAdmin reports whether this process has CAP_NET_ADMIN, in its user namespace.
func HasNetAdmin() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_NET_ADMIN) != 0
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

func isReadOnly(path string) bool {
	var s unix.Statfs_t
	return unix.Statfs(path, &s) == nil && s.Flags&unix.ST_RDONLY != 0
}

// interfaces returns the interfaces that have addresses, other than loopback and the devices of IPVS.
func interfaces() (list []Interface) {
	all, err := net.Interfaces()
	if err != nil {
		return nil
	}
	for _, i := range all {
		if i.Flags&net.FlagLoopback != 0 || i.Flags&net.FlagUp == 0 || i.Name == ipvs.DefaultDevice || i.Name == host.KubeProxyDevice || i.Name == userspace.DeviceName {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil || len(addrs) == 0 {
			continue
		}
		entry := Interface{Name: i.Name}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				entry.Addrs = append(entry.Addrs, p.Addr())
			}
		}
		list = append(list, entry)
	}
	return list
}

// bridges returns the bridges that have veth devices as ports whose other ends are in other network namespaces.
func bridges() (list []Bridge) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil
	}
	toOthers := map[int]bool{} // by the bridge's index
	for _, l := range links {
		a := l.Attrs()
		toOthers[a.MasterIndex] = toOthers[a.MasterIndex] || l.Type() == "veth" && a.NetNsID >= 0
	}
	for _, l := range links {
		if l.Type() != "bridge" || !toOthers[l.Attrs().Index] {
			continue
		}
		b := Bridge{Name: l.Attrs().Name}
		addrs, _ := netlink.AddrList(l, netlink.FAMILY_ALL)
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.IPNet.String()); err == nil {
				b.Addrs = append(b.Addrs, p)
			}
		}
		list = append(list, b)
	}
	return list
}

// defaultRoute returns the interface of the preferred default route.
func defaultRoute(f model.Family) string {
	family := map[model.Family]int{model.IPv4: netlink.FAMILY_V4, model.IPv6: netlink.FAMILY_V6}[f]
	routes, err := netlink.RouteList(nil, family)
	if err != nil {
		return ""
	}
	best := -1
	for i, r := range routes {
		whole := r.Dst == nil || r.Dst.IP.IsUnspecified() && isZero(r.Dst.Mask)
		if whole && r.LinkIndex > 0 && (best < 0 || r.Priority < routes[best].Priority) {
			best = i
		}
	}
	if best < 0 {
		return ""
	}
	i, err := net.InterfaceByIndex(routes[best].LinkIndex)
	if err != nil {
		return ""
	}
	return i.Name
}

func isZero(m net.IPMask) bool {
	ones, _ := m.Size()
	return ones == 0
}

// conntrackUse returns the use of the connection tracking table.
func conntrackUse() Conntrack {
	used, limit, err := nodesetup.TableUse(nodesetup.Options{})
	if err != nil {
		return Conntrack{}
	}
	c := Conntrack{Known: true, Used: used, Limit: limit}
	// A line of names, and one of hexadecimal numbers for each CPU.
	text, err := os.ReadFile("/proc/net/stat/nf_conntrack")
	if err != nil {
		return c
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	names := strings.Fields(lines[0])
	for _, line := range lines[1:] {
		for i, field := range strings.Fields(line) {
			n, err := strconv.ParseUint(field, 16, 64)
			if err != nil || i >= len(names) {
				continue
			}
			switch names[i] {
			case "insert_failed":
				c.InsertFailed += n
			case "drop":
				c.Dropped += n
			}
		}
	}
	return c
}
