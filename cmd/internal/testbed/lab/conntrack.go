package lab

import "github.com/vishvananda/netlink"

// FlushConntrack makes the namespace forget the connections that go through it.
func (ns *Namespace) FlushConntrack() error {
	return ns.Do(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) })
}
