package host

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
)

// createSet creates an empty set. It is no error if it exists.
func createSet(h *netlink.Handle, f model.Family, name ipvs.SetName) error {
	return h.IpsetCreate(name.In(f), name.Type(), netlink.IpsetCreateOptions{
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
