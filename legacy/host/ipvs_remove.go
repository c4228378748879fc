package host

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
)

// KubeProxyDevice is the dummy device of kube-proxy's IPVS mode.
const KubeProxyDevice = "kube-ipvs0"

// RemoveIPVS removes the device, virtual servers and ipsets that our IPVS backend or kube-proxy's left. It removes
// virtual servers only if the device of one of the two exists, and none in ExcludeCIDRs. RemoveRules must run before,
// since rules use the ipsets.
func RemoveIPVS(o ipvs.Options) error {
	return removeIPVS([]string{o.WithDefaults().Device, KubeProxyDevice}, o.Foreign,
		func(name string) bool { return isOurSet(name) || isKubeProxySet(name) })
}

// RemoveOwnIPVS removes what our IPVS backend left, and nothing of kube-proxy's. If kube-proxy's device exists, all
// virtual servers belong to kube-proxy: it deletes the ones that it does not want. RemoveOwnRules must run before.
func RemoveOwnIPVS(o ipvs.Options) error {
	kubeProxys, err := findDevice(KubeProxyDevice)
	if err != nil {
		return err
	}
	foreign := func(k ipvs.Key) bool { return o.Foreign(k) || kubeProxys != nil }
	return removeIPVS([]string{o.WithDefaults().Device}, foreign, isOurSet)
}

// removeIPVS removes devices, sets and, if one of the devices exists, virtual servers that are not foreign.
func removeIPVS(names []string, foreign func(ipvs.Key) bool, sets func(name string) bool) error {
	var errs []error
	note := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	// Addresses are deleted before servers: without a server, the node itself would answer.
	there := false
	for _, name := range names {
		link, err := findDevice(name)
		if err != nil {
			return err
		}
		if link != nil {
			there = true
			note("delete device "+name, netlink.LinkDel(link))
		}
	}
	if there && findIPVS() == nil {
		gone, err := removeServers(foreign)
		note("delete virtual servers", err)
		note("forget UDP flows", forgetFlows(gone))
	}
	note("destroy ipsets", removeSets(sets))
	return errors.Join(errs...)
}

// removeServers removes all virtual servers that are not foreign, and returns them.
func removeServers(foreign func(ipvs.Key) bool) (flows, error) {
	gone := flows{}
	table, err := openServers()
	if err != nil {
		return gone, err
	}
	defer table.Close()
	var errs []error
	for _, f := range model.Families {
		list, err := table.list(f)
		if err != nil {
			return gone, err
		}
		for k := range list {
			if foreign(k) {
				continue
			}
			if err := table.remove(k); err != nil {
				errs = append(errs, fmt.Errorf("%v: %w", k, err))
			}
			gone[k] = true
		}
	}
	return gone, errors.Join(errs...)
}

// flows selects UDP flows to virtual servers that are gone. IPVS had translated them by a table of its own: for
// connection tracking they are established and have no NAT, so they would never meet another backend's rules. A TCP
// client notices and connects anew; a UDP client that goes on sending would get no answer.
type flows map[ipvs.Key]bool

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (f flows) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	to, ok := netip.AddrFromSlice(flow.Forward.DstIP)
	return ok && model.Protocol(flow.Forward.Protocol) == model.UDP &&
		f[ipvs.Key{Addr: to.Unmap(), Protocol: model.UDP, Port: flow.Forward.DstPort}]
}

func forgetFlows(gone flows) error {
	var errs []error
	for _, family := range addressFamilies {
		_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.InetFamily(family), gone)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// RemoveKubeProxyIPVS removes the device and the ipsets of kube-proxy's IPVS mode, while our IPVS
// backend runs. The backend takes over the virtual servers, or deletes unwanted ones.
func RemoveKubeProxyIPVS() error {
	return errors.Join(RemoveDevice(KubeProxyDevice), removeSets(isKubeProxySet))
}
