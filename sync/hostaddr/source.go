//go:build linux

package hostaddr

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/reconcile"
	"github.com/vmapd/vmapd/sync/rtnetlink"
)

// Source writes the node's addresses into a [reconcile.State] and follows them.
//
// The addresses are those of all interfaces, without loopback (127.0.0.0/8, ::1), IPv6
// link-local addresses, and addresses that have not passed duplicate address detection.
// IPv4 comes first. In each family the order is
//
//  1. the source address of packets to the outside,
//  2. other addresses of the interface that sends them,
//  3. addresses of other interfaces, by interface index,
//
// and within these as the kernel lists them, with secondary, temporary (RFC 8981) and
// deprecated addresses last. An administrator would call the first the node's address.
type Source struct {
	Log *slog.Logger

	// Ignore names interfaces whose addresses are not the node's own, like the dummy
	// device with the virtual addresses of an IPVS proxy. Default: none.
	Ignore []string
}

// Run writes the addresses into the state, calls Complete, and writes them again when they
// change, until ctx ends. Then it returns nil. After an error of the kernel it keeps the
// known addresses, logs the error and retries.
func (s *Source) Run(ctx context.Context, state *reconcile.State) error {
	s.follow(ctx, 0, func(addrs []netip.Addr) {
		state.Update(reconcile.Change{}, func(b *model.Builder) { b.SetHostAddresses(addrs) })
	}, state.Complete)
	return nil
}

// follow calls update with the addresses of a network namespace at first, and when they have changed, and complete
// after the first time.
func (s *Source) follow(ctx context.Context, netNS int, update func([]netip.Addr), complete func()) {
	var known []netip.Addr
	first := true
	f := rtnetlink.Follower{
		Log: s.Log, What: "the node's addresses", NetNS: netNS,
		Groups: []uint{
			unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
			unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, // the default route determines the order
		},
		Matters: matters,
		Read: func(h *netlink.Handle) error {
			addrs, err := list(h, s.Ignore)
			if err != nil || !first && slices.Equal(known, addrs) {
				return err
			}
			known = addrs
			update(addrs)
			s.Log.Info("the node's addresses", slog.Any("addresses", addrs))
			if first {
				first = false
				complete()
			}
			return nil
		},
	}
	f.Run(ctx)
}
