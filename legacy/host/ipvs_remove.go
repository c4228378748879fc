package host

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/legacy/device"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
)

// KubeProxyDevice is the dummy device of kube-proxy's IPVS mode.
const KubeProxyDevice = "kube-ipvs0"

// kubeProxySets are the names of kube-proxy's sets, behind KUBE- or KUBE-6-.
var kubeProxySets = []string{
	"LOOP-BACK", "CLUSTER-IP", "EXTERNAL-IP", "EXTERNAL-IP-LOCAL", "LOAD-BALANCER", "LOAD-BALANCER-LOCAL",
	"LOAD-BALANCER-FW", "LOAD-BALANCER-SOURCE-IP", "LOAD-BALANCER-SOURCE-CIDR", "NODE-PORT-TCP", "NODE-PORT-LOCAL-TCP",
	"NODE-PORT-UDP", "NODE-PORT-LOCAL-UDP", "NODE-PORT-SCTP-HASH", "NODE-PORT-LOCAL-SCTP-HASH",
	"HEALTH-CHECK-NODE-PORT", "IPVS-IPS",
}

// object is a device or an ipset that is no running backend's, if it exists.
type object struct{ owner, kind, name string }

// objects returns the devices, and then the ipsets, of which rules may still use one that has a device's addresses.
func (l *Leftovers) objects() (list []object) {
	const longest = 31 // characters of the name of a set
	if !l.RunsIPVS {
		list = append(list, object{OwnerVmapd, KindDevice, ipvs.Device})
	}
	list = append(list, object{OwnerKubeProxy, KindDevice, KubeProxyDevice})
	if !hasIPSet() {
		return list
	}
	for _, name := range kubeProxySets {
		six := "KUBE-6-" + name
		list = append(list, object{OwnerKubeProxy, KindSet, "KUBE-" + name},
			object{OwnerKubeProxy, KindSet, six[:min(len(six), longest)]})
	}
	for _, name := range ipvs.SetNames {
		if !l.RunsIPVS {
			list = append(list, object{OwnerVmapd, KindSet, name.In(model.IPv4)},
				object{OwnerVmapd, KindSet, name.In(model.IPv6)})
		}
	}
	return list
}

func (o object) exists() (bool, error) {
	if o.kind == KindDevice {
		link, err := device.Find(o.name)
		return link != nil, err
	}
	_, err := netlink.IpsetList(o.name)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

func (o object) remove() error {
	if o.kind == KindDevice {
		return device.Remove(o.name)
	}
	const pause, attempts = 20 * time.Millisecond, 50
	err := netlink.IpsetDestroy(o.name)
	// The kernel ends a rule of nftables some time after its removal, and until then the rule's set is in use.
	for i := 0; i < attempts && errors.Is(err, nl.IPSetError(nl.IPSET_ERR_BUSY)); i++ {
		time.Sleep(pause)
		err = netlink.IpsetDestroy(o.name)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("destroy %s: %w", o.name, err)
	}
	return nil
}

// hasIPSet reports whether the kernel has ipset already: a request would load the module.
func hasIPSet() bool {
	_, err := os.Stat("/sys/module/ip_set")
	_, none := os.Stat("/sys/module")
	return err == nil || !errors.Is(err, fs.ErrNotExist) || none != nil
}

// findIPVS finds devices and ipsets. A device shows that its owner has virtual servers. They are removed with the last
// device: addresses are deleted before servers, as without a server, the node itself would answer; and all are
// kube-proxy's if its device stays: it deletes the ones that it does not want. A running IPVS backend takes them over.
func (l *Leftovers) findIPVS() (found []Leftover, err error) {
	last := -1
	for _, o := range l.objects() {
		switch there, err := o.exists(); {
		case err != nil:
			return found, fmt.Errorf("look for %s %s: %w", o.kind, o.name, err)
		case there && o.kind == KindDevice:
			last = len(found)
			fallthrough
		case there:
			found = append(found, Leftover{o.owner, o.kind, 1, o.remove})
		}
	}
	if last >= 0 && !l.RunsIPVS {
		remove := found[last].Remove
		found[last].Remove = func() error {
			err := remove()
			if findIPVS() != nil { // the kernel has no IPVS
				return err
			}
			return errors.Join(err, removeServers(l.Options.Foreign))
		}
	}
	return found, nil
}

// removeServers removes all virtual servers that are not foreign, and the UDP flows to them.
func removeServers(foreign func(ipvs.Key) bool) error {
	table, err := openServers()
	if err != nil {
		return err
	}
	defer table.Close()
	gone := flows{}
	var errs []error
	for _, f := range model.Families {
		list, err := table.list(f)
		errs = append(errs, err)
		for k := range list {
			if foreign(k) {
				continue
			}
			if err := table.remove(k); err != nil {
				errs = append(errs, fmt.Errorf("delete virtual server %v: %w", k, err))
			}
			gone[k] = true
		}
	}
	for _, family := range addressFamilies {
		_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.InetFamily(family), gone)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
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
