package tracer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/others"
)

// Filter selects the connection that is traced: the first one that matches.
type Filter struct {
	Source   netip.AddrPort // an invalid address: any; port 0: any
	Dest     netip.AddrPort
	Protocol model.Protocol
	Lifetime time.Duration // afterwards, no packet matches any more
}

// Tracer reads what the kernel does with some packets.
type Tracer struct {
	events *netlink.Conn
	rules  *nftables.Conn // owns the table
	table  *nftables.Table
}

// readBuffer has room for the messages about some thousand rules.
const readBuffer = 4 << 20

// Start begins to trace, in this thread's network namespace.
func Start(f Filter) (*Tracer, error) {
	events, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("open netlink connection: %w", err)
	}
	t := &Tracer{events: events}
	err = errors.Join(events.JoinGroup(unix.NFNLGRP_NFTRACE), events.SetReadBuffer(readBuffer))
	if err != nil {
		err = fmt.Errorf("listen to traces: %w", err)
	} else {
		err = t.program(f)
	}
	if err != nil {
		return nil, errors.Join(err, events.Close())
	}
	return t, nil
}

// program writes the table: first as one that the kernel removes when its owner has ended (Linux 5.12), then as an
// ordinary one. Both are for one connection to the kernel, because an owner must be the one that adds the rules.
func (t *Tracer) program(f Filter) (err error) {
	for _, flags := range []nftables.TableFlags{nftables.TableFlagOwner, 0} {
		if t.rules, err = nftables.New(nftables.AsLasting()); err != nil {
			return fmt.Errorf("open netlink connection: %w", err)
		}
		p := program{conn: t.rules, filter: f, fields: fieldsOf(model.FamilyOf(f.Dest.Addr()))}
		t.table = p.add(fmt.Sprintf("%s%d", others.TracerPrefix, t.events.PID()), flags)
		if err = t.rules.Flush(); err == nil {
			return nil
		}
		_ = t.rules.CloseLasting()
		if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EINVAL) {
			break // it does not fail because of an unknown flag
		}
	}
	return fmt.Errorf("write the rules that start a trace: %w", err)
}

// Table is the name of the table that this tracer made.
func (t *Tracer) Table() string { return t.table.Name }

// Read returns the next events. It returns none if there are none until the deadline.
func (t *Tracer) Read(ctx context.Context, deadline time.Time) ([]Event, error) {
	if err := t.events.SetReadDeadline(deadline); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = t.events.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	messages, err := t.events.Receive()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, ctx.Err()
	case errors.Is(err, unix.ENOBUFS):
		return nil, ErrLost
	case err != nil:
		return nil, fmt.Errorf("read traces: %w", err)
	}
	var events []Event
	for _, m := range messages {
		if m.Header.Type != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_TRACE {
			continue
		}
		e, err := decode(m.Data)
		if err != nil {
			return events, fmt.Errorf("read a trace: %w", err)
		}
		events = append(events, e)
	}
	return events, nil
}

// ErrLost indicates that the kernel had more messages than there was room for: somebody else
// traces many packets. Some of ours may be missing.
var ErrLost = errors.New("the kernel's messages about traced packets were too many; some are lost")

// Close ends the trace, and removes the table.
func (t *Tracer) Close() error {
	t.rules.DelTable(t.table)
	err := t.rules.Flush()
	if err != nil {
		err = fmt.Errorf("remove the rules that start a trace: %w", err)
	}
	return errors.Join(err, t.rules.CloseLasting(), t.events.Close())
}

// RemoveStale removes tables of tracers that were killed on a kernel that keeps them (before Linux 5.12). Of one that
// works it removes the table there, too.
func RemoveStale() error {
	tables, err := others.Tables()
	for _, t := range tables {
		if !t.IsTracers() || t.Owned {
			continue
		}
		conn := &nftables.Conn{}
		conn.DelTable(t.Library())
		if err := conn.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("remove the table %s of an earlier trace: %w", t.Table, err)
		}
	}
	return err
}
