//go:build linux

// Package rtnetlink follows what the kernel has of links, addresses and routes: it subscribes to changes, and reads
// everything again after each of them. A failed read is repeated and never mistaken for an empty result: reads fail
// when something changes at the same time (kubernetes/kubernetes#129147).
package rtnetlink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/sync/reconcile"
)

const (
	// minRetry and maxRetry are pauses before retries: the first is short, and a lasting error costs next to nothing.
	minRetry = 10 * time.Millisecond
	maxRetry = 5 * time.Second
	// pause is the least time between two reads: a device comes with several addresses and routes, a pod with a device
	// and a route, and with IPVS a frontend with an address.
	pause = 100 * time.Millisecond
)

// Follower reads a list at the start and after each change.
type Follower[T comparable] struct {
	Log *slog.Logger
	// What names it in the log, like "the node's addresses".
	What string
	// Groups are the groups of notifications (RTNLGRP_*) after which List is called.
	Groups []uint
	// List reads everything. Its result is not nil.
	List func(*netlink.Handle) ([]T, error)
	// Changed is called with the first list, and with each that differs from the one before.
	Changed func([]T)

	known []T // nil: nothing is known
	said  reconcile.LastError
}

// Run follows the kernel until ctx ends. After an error, it logs that once, and subscribes and reads again.
func (f *Follower[T]) Run(ctx context.Context) {
	retry := minRetry
	for {
		read, err := f.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if read {
			retry = minRetry
		}
		if f.said.Differs(err) {
			f.Log.Error("cannot read "+f.What+"; keeping the known ones",
				slog.Any("err", err), slog.Duration("retry_in", retry))
		}
		if !sleep(ctx, retry) {
			return
		}
		retry = min(2*retry, maxRetry)
	}
}

// follow returns only with an error, or when ctx ends, and reports whether something was read.
func (f *Follower[T]) follow(ctx context.Context) (read bool, err error) {
	events, err := nl.Subscribe(unix.NETLINK_ROUTE, f.Groups...)
	if err != nil {
		return false, fmt.Errorf("subscribe: %w", err)
	}
	changes := make(chan struct{}, 1) // one pending change is enough: List has them all
	var ended error                   // why there are no more; set before changes is closed
	go func() {
		defer close(changes)
		for ended = wait(events); ended == nil; ended = wait(events) {
			reconcile.Signal(changes)
		}
	}()
	defer func() {
		events.Close()
		for range changes { // until the goroutine has ended
		}
	}()
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return false, fmt.Errorf("connect: %w", err)
	}
	defer handle.Close()
	// The subscription comes first, so that no change is missed.
	for {
		if err := Recover(func() error { return f.read(handle) }); err != nil {
			return read, fmt.Errorf("read: %w", err)
		}
		read = true
		if f.said.Differs(nil) {
			f.Log.Info("reading " + f.What + " again")
		}
		select {
		case <-ctx.Done():
			return read, nil
		case _, more := <-changes:
			if !more {
				return read, fmt.Errorf("wait for changes: %w", ended)
			}
		}
		if !sleep(ctx, pause) {
			return read, nil
		}
	}
}

func (f *Follower[T]) read(handle *netlink.Handle) error {
	list, err := f.List(handle)
	if err == nil && (f.known == nil || !slices.Equal(list, f.known)) {
		f.known = list
		f.Changed(list)
	}
	return err
}

// Recover returns a panic of read as an error: vishvananda/netlink slices attributes without a look at their length, in
// nl.ParseRouteAttr (a last one without padding), LinkDeserialize and parseAddr. It should return an error instead.
func Recover(read func() error) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("unknown attributes: %v", fault)
		}
	}()
	return read()
}

// sleep returns false if ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// wait returns with each notification.
func wait(events *nl.NetlinkSocket) error {
	for {
		_, from, err := events.Receive()
		switch {
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN):
		case errors.Is(err, unix.ENOBUFS):
			return nil // notifications were lost
		case err != nil || from.Pid == nl.PidKernel: // any process may send to a netlink socket
			return err
		}
	}
}
