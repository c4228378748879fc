package doctor

import (
	"cmp"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/others"
	"github.com/vmapd/vmapd/sync/rtnetlink"
)

// Examine adds what the node alone shows. It changes nothing. With rules, those of other programs are read, too.
func (f *Facts) Examine(rules bool) {
	h := &f.Host
	h.NetAdmin, h.Sysctls, h.Addrs, h.Bridges = HasNetAdmin(), map[string]string{}, HostAddrs(), bridges()
	for _, file := range append([]string{IPForward, IPv6Forward, IPv6Disabled}, nodesetup.BridgeCalls[:]...) {
		if b, err := os.ReadFile(filepath.Join("/proc/sys", file)); err == nil {
			h.Sysctls[file] = strings.TrimSpace(string(b))
		}
	}
	if used, most, err := nodesetup.TableUse(nodesetup.Options{}); err == nil {
		h.Tracked, h.TrackedMost = used, most
	}
	h.Unset = nodesetup.Unset(nodesetup.Options{}, f.Wants.Conntrack)
	var release unix.Utsname
	if unix.Uname(&release) == nil {
		h.Kernel = unix.ByteSliceToString(release.Release[:])
	}
	var mount unix.Statfs_t
	h.ReadOnly = unix.Statfs("/proc/sys", &mount) == nil && mount.Flags&unix.ST_RDONLY != 0
	if h.NetAdmin {
		readChains(h, rules)
	}
}

// HasNetAdmin reports whether this process has CAP_NET_ADMIN, in its user namespace.
func HasNetAdmin() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_NET_ADMIN) != 0
}

// HostAddrs returns the addresses of this machine, also those of the backends ipvs and userspace.
func HostAddrs() (list []netip.Addr) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLoopback() {
			list = append(list, p.Addr())
		}
	}
	return list
}

// bridges returns the bridges with a port that is a veth device to another network namespace.
func bridges() (list []Bridge) {
	var links []netlink.Link
	err := rtnetlink.Recover(func() (err error) {
		links, err = netlink.LinkList()
		return err
	})
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

// readChains adds the base chains and the tables of iptables-legacy that other programs have. With rules, their rules
// are read, too, which takes memory where they are many.
func readChains(h *Host, rules bool) {
	unread := func(err error) {
		if err != nil {
			h.Unread = append(h.Unread, err.Error())
		}
	}
	set, err := others.ReadRuleset()
	if err != nil {
		unread(err)
		set = &others.Ruleset{}
	}
	defer set.Close()
	for _, b := range set.Bases {
		if b.Place.IsVmapds() || b.Hook == others.Postrouting || b.Place.Family == "bridge" {
			continue
		}
		c := Chain{Base: b}
		if rules {
			lines, err := set.Reached(b, others.Place.IsVmapds)
			unread(err)
			addRules(&c, lines)
		}
		h.Chains = append(h.Chains, c)
	}
	for _, f := range model.Families {
		names, err := host.LegacyTables(f)
		unread(err)
		h.LegacyTables[f] = slices.DeleteFunc(names, func(table string) bool { return table == "nat" })
	}
}

func addRules(c *Chain, lines []others.Line) {
	for _, l := range lines {
		if l.Drops || l.Rejects {
			c.Rules++
		}
		if l.Untracks {
			c.Untracks = append(c.Untracks, l)
		}
	}
	slices.SortFunc(c.Untracks, func(a, b others.Line) int {
		return cmp.Or(cmp.Compare(a.Place.Chain, b.Place.Chain), cmp.Compare(a.Position, b.Position))
	})
}
