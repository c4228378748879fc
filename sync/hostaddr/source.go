//go:build linux

package hostaddr

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netns"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// Pauses before retries: the first is short, and a lasting error costs next to nothing.
const (
	minRetry = 10 * time.Millisecond
	maxRetry = 5 * time.Second
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
	// IgnoreAddr reports whether an address is not the node's own, on whatever interface it is.
	// nil: none.
	IgnoreAddr func(netip.Addr) bool
}

// Run writes the addresses into the state, calls Complete, and writes them again when they
// change, until ctx ends. Then it returns nil. After an error of the kernel it keeps the
// known addresses, logs the error and retries.
func (s *Source) Run(ctx context.Context, state *reconcile.State) error {
	f := follower{
		log:  s.Log,
		open: func() (kernel, error) { return openNetlink(netns.None(), s.Ignore) },
		update: func(addrs []netip.Addr) {
			if s.IgnoreAddr != nil {
				addrs = slices.DeleteFunc(slices.Clone(addrs), s.IgnoreAddr)
			}
			state.Update(reconcile.Change{}, func(b *model.Builder) { b.SetHostAddresses(addrs) })
		},
		complete: state.Complete,
	}
	f.run(ctx)
	return nil
}

// kernel is a subscription to changes of addresses.
type kernel interface {
	// Wait blocks until addresses may have changed, or the kernel is closed.
	Wait() error
	// List returns the addresses now.
	List() ([]netip.Addr, error)
	// Close ends a Wait in another goroutine.
	Close()
}

type follower struct {
	log      *slog.Logger
	open     func() (kernel, error)
	update   func([]netip.Addr)
	complete func()

	addrs []netip.Addr
	known bool
	said  string // the error that was logged last; empty after a success
}

func (f *follower) run(ctx context.Context) {
	retry := minRetry
	for {
		ok, err := f.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if ok {
			retry = minRetry
		}
		if f.said != err.Error() {
			f.said = err.Error()
			f.log.LogAttrs(ctx, slog.LevelError, "cannot read the node's addresses; keeping the known ones",
				slog.Any("err", err), slog.Duration("retry_in", retry))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(retry):
		}
		retry = min(2*retry, maxRetry)
	}
}

// follow subscribes, lists, and lists again with each change. It returns only with
// an error, or when ctx ends, and reports whether it could list.
func (f *follower) follow(ctx context.Context) (ok bool, err error) {
	k, err := f.open()
	if err != nil {
		return false, fmt.Errorf("subscribe to addresses: %w", err)
	}
	// One pending change is enough: the list has them all.
	changes, waitErr := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		defer close(waitErr)
		for {
			if err := k.Wait(); err != nil {
				waitErr <- err
				return
			}
			reconcile.Signal(changes)
		}
	}()
	defer func() {
		k.Close()
		for range waitErr { // until the goroutine has ended
		}
	}()
	// The subscription comes first, so that no change is missed.
	for {
		addrs, err := k.List()
		if err != nil {
			return ok, fmt.Errorf("list addresses: %w", err)
		}
		ok = true
		f.use(ctx, addrs)
		select {
		case <-ctx.Done():
			return ok, nil
		case err := <-waitErr:
			return ok, fmt.Errorf("wait for addresses: %w", err)
		case <-changes:
		}
	}
}

func (f *follower) use(ctx context.Context, addrs []netip.Addr) {
	if f.said != "" {
		f.said = ""
		f.log.LogAttrs(ctx, slog.LevelInfo, "reading the node's addresses again")
	}
	if f.known && slices.Equal(f.addrs, addrs) {
		return
	}
	f.addrs = addrs
	f.update(slices.Clone(addrs))
	f.log.LogAttrs(ctx, slog.LevelInfo, "the node's addresses", slog.Any("addresses", addrs))
	if !f.known {
		f.known = true
		f.complete()
	}
}

var errClosed = errors.New("subscription is closed")
