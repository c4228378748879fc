package leftovers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
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

// Found is a number of objects of each kind that other backends or kube-proxy have on the node.
type Found map[host.Leftover]int

// Finder looks for leftovers. It is for one goroutine.
type Finder struct {
	host.Finder
	// RunsNFT and RunsUserspace: the objects of this backend are no leftovers.
	RunsNFT, RunsUserspace bool
}

// NewFinder returns a finder for a node on which no backend runs. o has the virtual servers that stay.
func NewFinder(o ipvs.Options) *Finder {
	return &Finder{Finder: host.Finder{Remover: host.Remover{NFTTables: others.TableNames}, Options: o}}
}

// All looks for all leftovers or, unless all is set, for what shows that some came back, which takes little time.
func (d *Finder) All(all bool) (Found, error) {
	look := d.Look
	if all {
		look = d.Find
	}
	counts, err := look()
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

// LogMissing logs once that chains of iptables can't be looked for, in place of errors.
func (d *Finder) LogMissing(log *slog.Logger) {
	var once sync.Once
	d.Missing = func(err error) {
		once.Do(func() {
			log.LogAttrs(context.Background(), slog.LevelWarn,
				"cannot look for what other Service proxies left in iptables: its programs are not installed",
				slog.Any("err", err))
		})
	}
}

// Of returns what one owner has.
func (f Found) Of(owner string) Found {
	theirs := Found{}
	for l, n := range f {
		if l.Owner == owner && n > 0 {
			theirs[l] = n
		}
	}
	return theirs
}

// String is like "kube-proxy's: 57 × iptables-nft chain, 1 × IPVS device".
func (f Found) String() string {
	var owners []string
	for _, owner := range []string{host.OwnerKubeProxy, host.OwnerVmapd} {
		var parts []string
		theirs := f.Of(owner)
		byKind := func(a, b host.Leftover) int { return cmp.Compare(a.Kind, b.Kind) }
		for _, l := range slices.SortedFunc(maps.Keys(theirs), byKind) {
			parts = append(parts, fmt.Sprintf("%d × %s", theirs[l], l.Kind))
		}
		if len(parts) > 0 {
			owners = append(owners, fmt.Sprintf("of %s: %s", owner, strings.Join(parts, ", ")))
		}
	}
	return strings.Join(owners, "; ")
}

// Remedy is what an administrator can do where a removal fails.
const Remedy = "remove them on the node (nft, iptables-nft, iptables-legacy, ipset, ipvsadm), or restart it; " +
	"until then, Services that no longer exist may still answer"

// ProxyMode asks a proxy at an address of metrics for its mode, as kube-proxy serves it; "" if none answers.
func ProxyMode(ctx context.Context, address string) string {
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
	return string(mode)
}
