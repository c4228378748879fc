//go:build linux

package hostaddr

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/reconcile"
	"github.com/vmapd/vmapd/sync/rtnetlink"
)

// Source writes the node's addresses into a [reconcile.State] and follows them.
//
// The addresses are those of all interfaces, without loopback (127.0.0.0/8, ::1), IPv6 link-local addresses, and
// addresses that have not passed duplicate address detection. IPv4 comes first. In each family the order is
//
//  1. the source address of packets to the outside,
//  2. other addresses of the interface that sends them,
//  3. addresses of other interfaces, by interface index,
//
// and within these as the kernel lists them, with secondary, temporary (RFC 8981) and
// deprecated addresses last. An administrator would call the first the node's address.
type Source struct {
	Log *slog.Logger

	// Ignore names interfaces with addresses that are not the node's own, like the dummy
	// device with the virtual addresses of an IPVS proxy. Default: none.
	Ignore []string
}

// Run writes the addresses into the state, calls Complete, and writes them again when they change, until ctx ends.
// After an error of the kernel it keeps the known addresses, logs the error and retries.
func (s *Source) Run(ctx context.Context, state *reconcile.State) {
	complete := sync.OnceFunc(state.Complete)
	s.follow(ctx, func(addrs []netip.Addr) {
		state.Update(reconcile.Change{}, func(b *model.Builder) { b.SetHostAddresses(addrs) })
		s.Log.Info("the node's addresses", slog.Any("addresses", addrs))
		complete()
	})
}

func (s *Source) follow(ctx context.Context, changed func([]netip.Addr)) {
	f := rtnetlink.Follower[netip.Addr]{
		Log: s.Log, What: "the node's addresses",
		Groups: []uint{
			unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
			unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, // the default route determines the order
		},
		List: s.list, Changed: changed,
	}
	f.Run(ctx)
}

// outside are addresses for documentation (RFC 5737, RFC 3849). No packet is sent to them.
// They stand for any destination behind the default route, in lookups of routes.
var outside = []net.IP{net.ParseIP("192.0.2.1"), net.ParseIP("2001:db8::1")}

func (s *Source) list(h *netlink.Handle) ([]netip.Addr, error) {
	// It is also an error if addresses changed during the dump (NLM_F_DUMP_INTR): some may be missing.
	all, err := h.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	ignored := map[int]bool{} // by the indexes of interfaces
	for _, name := range s.Ignore {
		link, err := h.LinkByName(name)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("interface %s: %w", name, err)
		}
		ignored[link.Attrs().Index] = true
	}
	addrs := make([]address, 0, len(all))
	for _, a := range all {
		ip, ok := netip.AddrFromSlice(a.IP)
		if ip = ip.Unmap(); ok && !ignored[a.LinkIndex] && usable(ip, a.Flags) {
			addrs = append(addrs, address{Addr: ip, link: a.LinkIndex, flags: a.Flags})
		}
	}
	var routed []address
	for _, ip := range outside {
		routes, err := h.RouteGet(ip)
		if err != nil || len(routes) == 0 {
			continue // this family has no default route
		}
		if src, ok := netip.AddrFromSlice(routes[0].Src); ok {
			routed = append(routed, address{Addr: src.Unmap(), link: routes[0].LinkIndex})
		}
	}
	return order(addrs, routed), nil
}

// address is an address with the attributes that determine its place in the order.
type address struct {
	netip.Addr
	link  int // index of its interface
	flags int // IFA_F_*
}

func usable(a netip.Addr, flags int) bool {
	tentative := flags&unix.IFA_F_TENTATIVE != 0 && flags&unix.IFA_F_OPTIMISTIC == 0
	return !tentative && flags&unix.IFA_F_DADFAILED == 0 && (a.IsGlobalUnicast() || a.Is4() && a.IsLinkLocalUnicast())
}

// order sorts addrs as documented at Source, and drops duplicates: an address may be on two interfaces. routed are the
// source address and the interface of packets to the outside, for each family with a default route.
func order(addrs, routed []address) []netip.Addr {
	rank := func(a address) (int, int) {
		// IFA_F_TEMPORARY is the same bit as IFA_F_SECONDARY.
		late := 0
		if a.flags&(unix.IFA_F_SECONDARY|unix.IFA_F_DEPRECATED) != 0 {
			late = 1
		}
		for _, w := range routed {
			switch {
			case w.Is4() != a.Is4():
			case w.Addr == a.Addr && late == 0:
				return -2, 0
			case w.link == a.link:
				return -1, late
			}
		}
		return a.link, late
	}
	slices.SortStableFunc(addrs, func(a, b address) int {
		aLink, aLate := rank(a)
		bLink, bLate := rank(b)
		return cmp.Or(a.BitLen()-b.BitLen(), aLink-bLink, aLate-bLate)
	})
	out := make([]netip.Addr, 0, len(addrs))
	for _, a := range addrs {
		if !slices.Contains(out, a.Addr) {
			out = append(out, a.Addr)
		}
	}
	return out
}
