package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/legacy/ipvs"
)

// read returns a family's objects in the kernel, and the listed rules: they can be compared with
// the companion only after Compile.
func (b *IPVS) read(ctx context.Context, p *programs, o ipvs.Options) (*ipvs.Content, *iptables.Saved, error) {
	c := ipvs.NewContent(p.family)
	for _, s := range o.Sysctls(p.family) {
		if !meant(s) {
			c.Sysctls[s.Name] = s.Value // as good as set
			continue
		}
		value, err := os.ReadFile(sysctlPath(s.Name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // setting it gives this error, too
			return nil, nil, fmt.Errorf("sysctl: %w", err)
		}
		c.Sysctls[s.Name] = strings.TrimSpace(string(value))
	}
	var err error
	if c.Timeouts, err = b.servers.timeouts(); err != nil {
		return nil, nil, err
	}
	if err := readDevice(o.Device, c); err != nil {
		return nil, nil, err
	}
	if c.Sets, err = readSets(ctx, p.family); err != nil {
		return nil, nil, err
	}
	saved, err := save(ctx, p.name)
	if err != nil {
		return nil, nil, err
	}
	if c.Servers, err = b.servers.list(p.family); err != nil {
		return nil, nil, err
	}
	return c, saved, nil
}

// readDevice finds the dummy device and its addresses.
func readDevice(name string, c *ipvs.Content) error {
	link, err := findDevice(name)
	if link == nil || err != nil {
		return err
	}
	if link.Type() != "dummy" {
		return fmt.Errorf("the device %s is of type %s, and not dummy", name, link.Type())
	}
	c.Device = name
	list, err := netlink.AddrList(link, int(addressFamilies[c.Family]))
	if err != nil {
		return fmt.Errorf("list addresses of %s: %w", name, err)
	}
	for _, a := range list {
		addr, ok := netip.AddrFromSlice(a.IP)
		if addr = addr.Unmap(); ok && !addr.IsLinkLocalUnicast() { // the kernel adds one to a device that is up
			c.Addrs[addr] = true
		}
	}
	return nil
}

func sysctlPath(name string) string { return "/proc/sys/" + strings.ReplaceAll(name, ".", "/") }

// meant reports whether this kernel's version needs a sysctl.
func meant(s ipvs.Sysctl) bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return s.From == "" && s.Below == ""
	}
	release := unix.ByteSliceToString(u.Release[:])
	return (s.From == "" || !older(release, s.From)) && (s.Below == "" || older(release, s.Below))
}

// older reports whether a kernel's release is of an earlier version than another. One that is no
// version is older than all.
func older(release, than string) bool {
	v, err := version.ParseGeneric(release)
	return err != nil || v.LessThan(version.MustParseGeneric(than))
}
