package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/legacy/userspace"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/others"
)

// kubeProxyTable is the table of kube-proxy's nftables mode.
const kubeProxyTable = "kube-proxy"

// Kinds of leftovers; legacy/host has the others.
const (
	kindTable     = "nftables table"
	kindOurDevice = "device of userspace"
)

// found is a number of objects of each kind that other backends or kube-proxy have on the node.
type found map[host.Leftover]int

// finder looks for leftovers. It is for one goroutine.
type finder struct {
	host.Finder
	runsNFT       bool
	runsUserspace bool
}

func newFinder(o ipvs.Options) *finder {
	return &finder{Finder: host.Finder{Remover: host.Remover{NFTTables: others.TableNames}, Options: o}}
}

// find looks for all leftovers, or for what tells that some came back, which takes little time.
func (d *finder) find(all bool) (found, error) {
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
			case name == kubeProxyTable:
				counts[host.Leftover{Owner: host.OwnerKubeProxy, Kind: kindTable}]++
			case name == nft.TableName && !d.runsNFT:
				counts[host.Leftover{Owner: host.OwnerVmapd, Kind: kindTable}]++
			}
		}
	}
	if !d.runsUserspace {
		if _, err := net.InterfaceByName(userspace.DeviceName); err == nil {
			counts[host.Leftover{Owner: host.OwnerVmapd, Kind: kindOurDevice}] = 1
		}
	}
	return counts, errors.Join(errs...)
}

// tellMissing logs once that chains of iptables can't be looked for, in place of errors.
func (d *finder) tellMissing(log *slog.Logger) {
	var once sync.Once
	d.Missing = func(err error) {
		once.Do(func() {
			log.LogAttrs(context.Background(), slog.LevelWarn,
				"cannot look for what other Service proxies left in iptables: its programs are not installed", slog.Any("err", err))
		})
	}
}

// of returns what one owner has.
func (f found) of(owner string) found {
	theirs := found{}
	for l, n := range f {
		if l.Owner == owner && n > 0 {
			theirs[l] = n
		}
	}
	return theirs
}

// String is like "kube-proxy's: 57 × iptables-nft chain, 1 × IPVS device".
func (f found) String() string {
	var owners []string
	for _, owner := range []string{host.OwnerKubeProxy, host.OwnerVmapd} {
		var parts []string
		theirs := f.of(owner)
		for _, l := range slices.SortedFunc(maps.Keys(theirs), func(a, b host.Leftover) int { return cmp.Compare(a.Kind, b.Kind) }) {
			parts = append(parts, fmt.Sprintf("%d × %s", theirs[l], l.Kind))
		}
		if len(parts) > 0 {
			owners = append(owners, fmt.Sprintf("of %s: %s", owner, strings.Join(parts, ", ")))
		}
	}
	return strings.Join(owners, "; ")
}

// leftoversRemedy is what an administrator can do where a removal fails.
const leftoversRemedy = "remove them on the node (nft, iptables-nft, iptables-legacy, ipset, ipvsadm), or restart it; " +
	"until then, Services that no longer exist may go on answering"
