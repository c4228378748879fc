package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
)

// kubeProxyDevice is the dummy device of kube-proxy's IPVS mode.
const kubeProxyDevice = "kube-ipvs0"

// RemoveIPVS takes away what an IPVS backend of ours or of kube-proxy's left. Virtual
// servers are theirs only where one of their devices is; those in ExcludeCIDRs stay. kube-proxy's
// rules must be gone before (RemoveRules), since they use its ipsets.
func RemoveIPVS(ctx context.Context, o ipvs.Options) error {
	links, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open a netlink socket: %w", err)
	}
	defer links.Close()
	var devices []string
	for _, name := range []string{withDevice(o).Device, kubeProxyDevice} {
		link, err := findDevice(links, name)
		if err != nil {
			return err
		}
		if link != nil {
			devices = append(devices, name)
		}
	}
	var errs []error
	note := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	// The addresses first: without its virtual server, the node itself would answer at one.
	for _, name := range devices {
		note("delete device "+name, deleteDevice(links, name))
	}
	if len(devices) > 0 && findIPVS() == nil {
		note("delete virtual servers", removeServers(o))
	}
	for _, variant := range []string{"-legacy", "-nft"} {
		for _, name := range []string{"iptables", "ip6tables"} {
			note("remove rules", removeRules(ctx, name+variant, isCompanions))
		}
	}
	if hasSets() {
		_, err := removeSets(ctx, "VMAPD-", "VMAPD6-", "KUBE-")
		note("destroy ipsets", err)
	}
	return errors.Join(errs...)
}

func isCompanions(chain string) bool { return strings.HasPrefix(chain, companionPrefix) }

// hasSets reports whether there may be ipsets: to ask the program would load the module.
func hasSets() bool {
	if _, err := exec.LookPath("ipset"); err != nil {
		return false
	}
	_, err := os.Stat("/sys/module")
	if err == nil {
		_, err = os.Stat("/sys/module/ip_set")
		return !errors.Is(err, fs.ErrNotExist)
	}
	return true
}

func removeServers(o ipvs.Options) error {
	table, err := openServers()
	if err != nil {
		return err
	}
	defer table.Close()
	var errs []error
	for _, f := range model.Families {
		list, err := table.list(f)
		if err != nil {
			return err
		}
		for k := range list {
			if o.Foreign(k) {
				continue
			}
			if err := table.remove(k); err != nil {
				errs = append(errs, fmt.Errorf("%v: %w", k, err))
			}
		}
	}
	return errors.Join(errs...)
}

// RemoveKubeProxyIPVS takes away what kube-proxy's IPVS mode left and an IPVS backend of ours
// does not use: its device and its ipsets. Its virtual servers are taken over, or deleted as
// ones that nobody wants.
func RemoveKubeProxyIPVS(ctx context.Context) error {
	links, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open a netlink socket: %w", err)
	}
	defer links.Close()
	errs := []error{deleteDevice(links, kubeProxyDevice)}
	if hasSets() {
		_, err := removeSets(ctx, "KUBE-")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
