package leftovers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/legacy/userspace"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/others"
)

// KubeProxyTable is the table of kube-proxy's nftables mode.
const KubeProxyTable = "kube-proxy"

// Kinds of leftovers; legacy/host has the others.
const (
	kindTable     = "nftables table"
	kindOurDevice = "device of userspace"
)

var owners = []string{host.OwnerKubeProxy, host.OwnerVmapd}

// Found is a number of objects of each kind that other backends or kube-proxy have on the node.
type Found map[host.Leftover]int

// Finder finds and removes leftovers. It is for one goroutine.
type Finder struct {
	host.Leftovers
	// RunsNFT and RunsUserspace: the objects of this backend are no leftovers.
	RunsNFT, RunsUserspace bool
}

// NewFinder returns a finder for a node on which no backend runs. o has the virtual servers that stay.
func NewFinder(o ipvs.Options) *Finder {
	return &Finder{Leftovers: host.Leftovers{NFT: others.IPTables{}, Options: o}}
}

// All looks for all leftovers. The error says what could not be examined.
func (d *Finder) All() (Found, error) {
	counts, err := d.Find()
	errs := []error{err}
	for _, f := range model.Families {
		names, err := others.TableNames(f)
		errs = append(errs, err)
		for _, name := range names {
			switch {
			case name == KubeProxyTable:
				counts[host.Leftover{Owner: host.OwnerKubeProxy, Kind: kindTable}]++
			case name == nft.TableName && !d.RunsNFT:
				counts[host.Leftover{Owner: host.OwnerVmapd, Kind: kindTable}]++
			}
		}
	}
	if !d.RunsUserspace {
		if _, err := net.InterfaceByName(userspace.DeviceName); err == nil {
			counts[host.Leftover{Owner: host.OwnerVmapd, Kind: kindOurDevice}] = 1
		}
	}
	return counts, errors.Join(errs...)
}

// Of returns what one owner has.
func (f Found) Of(owner string) Found {
	theirs := maps.Clone(f)
	maps.DeleteFunc(theirs, func(l host.Leftover, n int) bool { return l.Owner != owner || n == 0 })
	return theirs
}

// String is like "of kube-proxy: 1 × IPVS device, 57 × iptables-nft chain".
func (f Found) String() string {
	var all []string
	for _, owner := range owners {
		var parts []string
		for l, n := range f.Of(owner) {
			parts = append(parts, fmt.Sprintf("%d × %s", n, l.Kind))
		}
		slices.Sort(parts)
		if len(parts) > 0 {
			all = append(all, fmt.Sprintf("of %s: %s", owner, strings.Join(parts, ", ")))
		}
	}
	return strings.Join(all, "; ")
}

// RunningProxy says which proxy runs in this network namespace: the process kube-proxy, or what answers at an address
// of metrics; "" if none is found.
func RunningProxy(ctx context.Context, address string) string {
	if proxy := Answering(ctx, address); proxy != "" {
		return proxy
	}
	here, _ := os.Readlink("/proc/self/ns/net")
	names, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, file := range names {
		name, _ := os.ReadFile(file)
		if strings.TrimSpace(string(name)) != "kube-proxy" {
			continue
		}
		process := filepath.Dir(file)
		if there, _ := os.Readlink(process + "/ns/net"); there == here {
			return "kube-proxy runs as process " + filepath.Base(process)
		}
	}
	return ""
}

// Answering says which proxy answers at an address of metrics, by its mode, as kube-proxy serves it; "" if none does.
func Answering(ctx context.Context, address string) string {
	const timeout, longest = time.Second, 16
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/proxyMode", nil)
	if err != nil {
		return ""
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	mode, err := io.ReadAll(io.LimitReader(response.Body, longest))
	modes := []config.Backend{config.NFTables, config.IPTables, config.IPVS, config.Userspace}
	if err != nil || !slices.Contains(modes, config.Backend(mode)) {
		return ""
	}
	return fmt.Sprintf("a proxy with mode %s answers at %s", mode, address)
}
