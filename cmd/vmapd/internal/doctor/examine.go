package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/others"
	"github.com/vmapd/vmapd/sync/rtnetlink"
)

// Examine adds what the node alone shows, but for Rules. It changes nothing.
func (f *Facts) Examine() {
	h := &f.Host
	h.MTUs = map[int]string{}
	h.NetAdmin, h.Sysctls = HasNetAdmin(), map[string]string{}
	_ = rtnetlink.Recover(h.readLinks) // what can't be read is not judged
	for _, file := range append([]string{IPForward, IPv6Forward, IPv6Disabled}, nodesetup.BridgeCalls[:]...) {
		if value, err := nodesetup.Sysctl(file); err == nil {
			h.Sysctls[file] = value
		}
	}
	h.Tracked, h.TrackedMost, _ = nodesetup.TableUse(nodesetup.Options{}) // 0 without connection tracking
	h.Unset = nodesetup.Unset(nodesetup.Options{}, f.Wants.Conntrack)
	var release unix.Utsname
	if unix.Uname(&release) == nil {
		h.Kernel = unix.ByteSliceToString(release.Release[:])
	}
	var mount unix.Statfs_t
	h.ReadOnly = unix.Statfs("/proc/sys", &mount) == nil && mount.Flags&unix.ST_RDONLY != 0
	for _, pod := range f.Wants.Pods {
		routes, err := netlink.RouteGet(pod.AsSlice())
		switch {
		case err != nil: // also where a route makes it unreachable
			h.NoRoute = append(h.NoRoute, fmt.Sprintf("%v: %v", pod, err))
		case len(routes) > 0:
			if l, err := netlink.LinkByIndex(routes[0].LinkIndex); err == nil {
				h.MTUs[cmp.Or(routes[0].MTU, l.Attrs().MTU)] = fmt.Sprintf("%v by %s", pod, l.Attrs().Name)
			}
		}
	}
}

// HasNetAdmin reports whether this process has CAP_NET_ADMIN, in its user namespace.
func HasNetAdmin() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_NET_ADMIN) != 0
}

// readLinks reads the addresses of this machine, also those of the backends ipvs and userspace, and the bridges with a
// port that is a veth device to another network namespace.
func (h *Host) readLinks() error {
	links, _ := netlink.LinkList() // as far as they can be read
	addrs, _ := netlink.AddrList(nil, netlink.FAMILY_ALL)
	of := map[int][]netip.Prefix{} // by the device's index
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.IPNet.String()); err == nil && !p.Addr().IsLoopback() {
			h.Addrs = append(h.Addrs, p.Addr())
			of[a.LinkIndex] = append(of[a.LinkIndex], p)
		}
	}
	toOthers := map[int]bool{} // by the bridge's index
	for _, l := range links {
		a := l.Attrs()
		toOthers[a.MasterIndex] = toOthers[a.MasterIndex] || l.Type() == "veth" && a.NetNsID >= 0
	}
	for _, l := range links {
		if a := l.Attrs(); l.Type() == "bridge" && toOthers[a.Index] {
			h.Bridges = append(h.Bridges, Bridge{a.Name, of[a.Index]})
		}
	}
	return nil
}

// ReadRules reads the base chains of other programs with their rules, which takes memory where these are many, and the
// names of the tables of iptables-legacy. Without CAP_NET_ADMIN, nothing can be read.
func ReadRules() (r Rules) {
	unread := func(err error) {
		if err != nil {
			r.Unread = append(r.Unread, err.Error())
		}
	}
	if !HasNetAdmin() {
		return r
	}
	set, err := others.ReadRuleset()
	unread(err)
	for _, b := range set.Bases {
		if b.Place.IsVmapds() || b.Hook == others.Postrouting || b.Place.Family == "bridge" {
			continue
		}
		c := Chain{Base: b}
		lines, err := set.Reached(b, others.Place.IsVmapds)
		unread(err)
		for _, l := range lines {
			if l.Drops || l.Rejects {
				c.Rules++
			}
			if l.Untracks {
				c.Untracks = append(c.Untracks, l)
			}
			if l.To.IsValid() {
				c.Translates = append(c.Translates, l)
			}
		}
		slices.SortFunc(c.Untracks, func(a, b others.Line) int {
			return cmp.Or(cmp.Compare(a.Place.Chain, b.Place.Chain), cmp.Compare(a.Position, b.Position))
		})
		r.Chains = append(r.Chains, c)
	}
	for _, f := range model.Families {
		names, err := host.LegacyTables(f)
		unread(err)
		r.LegacyTables[f] = slices.DeleteFunc(names, func(table string) bool { return table == "nat" })
	}
	return r
}
