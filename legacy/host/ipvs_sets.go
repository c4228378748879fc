package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	mdlayher "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
)

// createSet creates an empty set of the type of one of ours. It is no error if it exists.
func createSet(h *netlink.Handle, name string, f model.Family, like ipvs.SetName) error {
	return h.IpsetCreate(name, like.Type(), netlink.IpsetCreateOptions{
		Replace: true, Family: uint8(addressFamilies[f]), MaxElements: ipvs.MaxEntries,
	})
}

// setEntry returns an entry for the library. It is no error to add one that exists, or to delete one that does not.
func setEntry(e ipvs.Entry) *netlink.IPSetEntry {
	entry := &netlink.IPSetEntry{IP: e.Addr.AsSlice(), Replace: true}
	if e.Protocol != 0 {
		protocol := uint8(e.Protocol)
		entry.Protocol, entry.Port = &protocol, &e.Port
	}
	if e.Net.IsValid() {
		entry.IP2, entry.CIDR2 = e.Net.Addr().AsSlice(), uint8(e.Net.Bits()) //nolint:gosec // at most 128
	}
	return entry
}

// readSets returns our sets of a family.
func readSets(f model.Family) (map[ipvs.SetName]map[ipvs.Entry]bool, error) {
	sets := map[ipvs.SetName]map[ipvs.Entry]bool{}
	for _, name := range ipvs.SetNames {
		list, err := netlink.IpsetList(name.In(f))
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list ipset %s: %w", name.In(f), err)
		}
		sets[name] = map[ipvs.Entry]bool{}
		for _, entry := range list.Entries {
			e, err := entryOf(&entry)
			if err != nil {
				return nil, fmt.Errorf("list ipset %s: %w", name.In(f), err)
			}
			sets[name][e] = true
		}
	}
	return sets, nil
}

func entryOf(n *netlink.IPSetEntry) (e ipvs.Entry, err error) {
	var ok bool
	if e.Addr, ok = netip.AddrFromSlice(n.IP); !ok {
		return e, fmt.Errorf("%v is no address", n.IP)
	}
	if n.Protocol != nil && n.Port != nil {
		e.Protocol, e.Port = model.Protocol(*n.Protocol), *n.Port
	}
	if n.IP2 != nil {
		a, ok := netip.AddrFromSlice(n.IP2)
		if e.Net = netip.PrefixFrom(a, int(n.CIDR2)); !ok || !e.Net.IsValid() {
			return e, fmt.Errorf("%v/%d is no prefix", n.IP2, n.CIDR2)
		}
	}
	return e, nil
}

// probePrefix is the beginning of the names of sets that exist for a moment only.
const probePrefix = "VMAPD-PROBE"

// probeSets creates an empty set of each type that the backend uses, to find out whether the
// kernel has the type. Other probes can use the sets until they are removed.
func probeSets(h *netlink.Handle) (remove func() error, err error) {
	var names []string
	remove = func() error {
		var errs []error
		for _, name := range names {
			errs = append(errs, destroySet(name))
		}
		return errors.Join(errs...)
	}
	for _, f := range model.Families {
		for _, name := range ipvs.SetNames {
			probe := probePrefix + strings.TrimPrefix(name.In(f), "VMAPD")
			if err := createSet(h, probe, f, name); err != nil {
				return nil, errors.Join(fmt.Errorf("create a set of type %s: %w", name.Type(), err), remove())
			}
			names = append(names, probe)
		}
	}
	return remove, nil
}

// kubeProxySets are the beginnings of the names of kube-proxy's sets, behind KUBE- or KUBE-6-. Others
// have sets with names of that kind, too: kube-router's are KUBE-SRC-… and KUBE-DST-….
var kubeProxySets = []string{
	"LOOP-BACK", "CLUSTER-IP", "EXTERNAL-IP", "LOAD-BALANCER", "NODE-PORT", "HEALTH-CHECK-NODE-PORT", "IPVS-IPS",
}

func isKubeProxySet(name string) bool {
	name, ok := strings.CutPrefix(name, "KUBE-")
	name = strings.TrimPrefix(name, "6-")
	return ok && slices.ContainsFunc(kubeProxySets, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

func isOurSet(name string) bool {
	return strings.HasPrefix(name, "VMAPD-") || strings.HasPrefix(name, "VMAPD6-")
}

// removeSets destroys sets, without the program.
func removeSets(theirs func(name string) bool) error {
	names, err := listSets()
	errs := []error{err}
	for _, name := range names {
		if !theirs(name) {
			continue
		}
		if err := destroySet(name); err != nil {
			errs = append(errs, fmt.Errorf("destroy %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// destroySet destroys a set. The kernel ends a rule of nftables some time after its removal, and
// until then the rule's set is in use.
func destroySet(name string) error {
	const pause, attempts = 20 * time.Millisecond, 50
	for i := 0; ; i++ {
		err := netlink.IpsetDestroy(name)
		if !errors.Is(err, nl.IPSetError(nl.IPSET_ERR_BUSY)) || i == attempts {
			return err
		}
		time.Sleep(pause)
	}
}

// listSets returns the names of all sets. The library's own request is one for all entries, too.
func listSets() ([]string, error) {
	if _, err := os.Stat("/sys/module/ip_set"); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat("/sys/module"); err == nil {
			return nil, nil // the request would load the module
		}
	}
	const namesOnly = 1 << 1 // IPSET_FLAG_LIST_SETNAME
	req := nl.NewNetlinkRequest(nl.IPSET_CMD_LIST|unix.NFNL_SUBSYS_IPSET<<8, nl.GetIpsetFlags(nl.IPSET_CMD_LIST))
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_INET, Version: nl.NFNETLINK_V0})
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_PROTOCOL, nl.Uint8Attr(nl.IPSET_PROTOCOL)))
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_FLAGS|unix.NLA_F_NET_BYTEORDER, binary.BigEndian.AppendUint32(nil, namesOnly)))
	answers, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return nil, fmt.Errorf("list ipsets: %w", err)
	}
	var names []string
	for _, a := range answers {
		name, err := setName(a)
		if err != nil {
			return nil, fmt.Errorf("list ipsets: %w", err)
		}
		names = append(names, name)
	}
	return names, nil
}

// setName reads an answer of the kernel's. nl.ParseRouteAttr panics at a last attribute without its padding.
func setName(answer []byte) (name string, err error) {
	attrs, err := mdlayher.NewAttributeDecoder(answer[min(len(answer), nl.SizeofNfgenmsg):])
	if err != nil {
		return "", err
	}
	for attrs.Next() {
		if attrs.Type() == nl.IPSET_ATTR_SETNAME {
			name = unix.ByteSliceToString(attrs.Bytes())
		}
	}
	return name, attrs.Err()
}
