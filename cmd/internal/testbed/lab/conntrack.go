package lab

import "github.com/vishvananda/netlink"

// FlushConntrack deletes all entries of the connection tracking table of the namespace.
func (ns *Namespace) FlushConntrack() error {
	return ns.Do(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) })
}
