package devices

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/sync/rtnetlink"
)

// pause is the least time between two lists of the devices: a pod that starts causes several
// notifications.
const pause = 100 * time.Millisecond

// Source follows the devices of a network namespace.
type Source struct {
	Log *slog.Logger
	// NetNS is a file descriptor of the network namespace. 0 is the current one.
	NetNS  int
	Choice Choice
	// Changed is called with the names of the chosen devices, sorted, when they are known and after each
	// change, also of a device behind a name.
	Changed func(names []string)

	known  bool
	chosen []link
}

// Run follows the devices until ctx ends. After an error it keeps those that are known, logs the error
// once, and tries again.
func (s *Source) Run(ctx context.Context) {
	f := rtnetlink.Follower{
		Log: s.Log, What: "the devices of the fast path", NetNS: s.NetNS,
		Groups: []uint{unix.RTNLGRP_LINK}, Pause: pause, Read: s.list,
	}
	f.Run(ctx)
}

// list lists the devices, and tells a change.
func (s *Source) list(handle *netlink.Handle) error {
	all, err := handle.LinkList()
	if err != nil {
		return fmt.Errorf("list devices: %w", err)
	}
	links := make([]link, len(all))
	for i, l := range all {
		a := l.Attrs()
		links[i] = link{
			index: a.Index, name: a.Name, kind: l.Type(),
			ethernet: a.EncapType == "ether" && a.Flags&net.FlagLoopback == 0,
		}
		if a.Slave != nil {
			links[i].master = a.Slave.SlaveType()
		}
	}
	chosen := s.Choice.of(links)
	if s.known && slices.Equal(chosen, s.chosen) {
		return nil
	}
	s.known, s.chosen = true, chosen
	names := make([]string, len(chosen))
	for i, l := range chosen {
		names[i] = l.name
	}
	s.Log.Debug("devices of the fast path", slog.Any("devices", names))
	s.Changed(names)
	return nil
}
