package devices

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/sync/reconcile"
)

const (
	// pause is the least time between two lists of the devices: a pod that starts causes several
	// notifications.
	pause = 100 * time.Millisecond
	// retry is the time until the next try after an error.
	retry = 5 * time.Second
)

// Source follows the devices of a network namespace.
type Source struct {
	Log *slog.Logger
	// NetNS is a file descriptor of the network namespace. 0 is the current one.
	NetNS  int
	Choice Choice
	// Changed is called with the names of the chosen devices, sorted, when they are known and after each
	// change, also of a device behind a name.
	Changed func(names []string)

	said   string
	known  bool
	chosen []link
}

// Run follows the devices until ctx ends. After an error it keeps those that are known, logs the error
// once, and tries again.
func (s *Source) Run(ctx context.Context) {
	for {
		err := s.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if text := err.Error(); text != s.said {
			s.said = text
			s.Log.LogAttrs(ctx, slog.LevelWarn, "cannot follow the devices of the fast path; keeping the known ones", slog.Any("err", err))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(retry):
		}
	}
}

// follow subscribes, lists, and lists again after notifications. It returns with an error, or when ctx ends.
func (s *Source) follow(ctx context.Context) error {
	at := netns.None()
	if s.NetNS != 0 {
		at = netns.NsHandle(s.NetNS)
	}
	events, err := nl.SubscribeAt(at, netns.None(), unix.NETLINK_ROUTE, unix.RTNLGRP_LINK)
	if err != nil {
		return fmt.Errorf("subscribe to devices: %w", err)
	}
	handle, err := netlink.NewHandleAt(at, unix.NETLINK_ROUTE)
	if err != nil {
		events.Close()
		return fmt.Errorf("list devices: %w", err)
	}
	defer handle.Close()
	changes, failed := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		defer close(failed)
		failed <- receive(events, changes)
	}()
	defer func() {
		events.Close()
		for range failed { // until the goroutine has ended
		}
	}()
	for {
		if err := s.list(handle); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return fmt.Errorf("wait for devices: %w", err)
		case <-changes:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// receive signals notifications until the socket is closed.
func receive(events *nl.NetlinkSocket, changes chan struct{}) error {
	for {
		_, from, err := events.Receive()
		switch {
		case errors.Is(err, os.ErrClosed):
			return err
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN):
			continue
		case errors.Is(err, unix.ENOBUFS): // some were lost
		case err != nil:
			return err
		case from.Pid != nl.PidKernel:
			continue // any process may send to a netlink socket
		}
		reconcile.Signal(changes)
	}
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
	s.said, s.known, s.chosen = "", true, chosen
	names := make([]string, len(chosen))
	for i, l := range chosen {
		names[i] = l.name
	}
	s.Log.Debug("devices of the fast path", slog.Any("devices", names))
	s.Changed(names)
	return nil
}
