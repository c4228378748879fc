package conntrack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// Messages, from linux/netfilter/nfnetlink_conntrack.h.
const (
	msgMake   = unix.NFNL_SUBSYS_CTNETLINK << 8
	msgGet    = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1
	msgDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2
)

const (
	// bufferSize is the largest datagram of a dump.
	bufferSize = 32 << 10
	// patience bounds the time for the deletion of a flow.
	patience = 10 * time.Second
)

// Table is the connection tracking table of a network namespace. Its connections stay open from their first use on: the
// kernel accepts no nftables batch while it ends one (nft_rcv_nl_event). The zero value is the current namespace's. Any
// number of goroutines may use it, one after the other.
type Table struct {
	NetNS int                           // a file descriptor of the network namespace; 0: the current one
	Dial  func() (*netlink.Conn, error) // opens connections to another kernel, in tests; nil: to this machine's

	mu               sync.Mutex
	dumps, deletions *netlink.Conn // nil: not open. A dump must not mix with other replies
}

// List calls each with the flows of a family that a filter selects, and on kernels before Linux 5.8 with all others,
// too. When ctx ends, it fails. each must not keep the flow.
func (t *Table) List(ctx context.Context, of model.Family, q Filter, each func(*Flow)) error {
	_, _, _, err := t.sweep(ctx, of, q, func(f *Flow) bool {
		each(f)
		return false
	})
	return err
}

func (t *Table) open(c **netlink.Conn) (err error) {
	switch {
	case *c != nil:
	case t.Dial != nil:
		*c, err = t.Dial()
	default:
		*c, err = netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: t.NetNS, MessageBufferSize: bufferSize})
	}
	if err != nil {
		return fmt.Errorf("open netfilter netlink: %w", err)
	}
	return nil
}

func (t *Table) close() {
	for _, c := range []**netlink.Conn{&t.dumps, &t.deletions} {
		if *c != nil {
			_ = (*c).Close()
			*c = nil
		}
	}
}

// sweep deletes the stale flows of a family that a filter selects, and reports whether the kernel has listed others,
// too. After an error, the next sweep has new connections, because an answer may not have arrived yet.
func (t *Table) sweep(ctx context.Context, of model.Family, q Filter, stale func(*Flow) bool) (
	seen, deleted int, all bool, err error,
) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.open(&t.dumps); err != nil {
		return 0, 0, false, err
	}
	dumps := t.dumps
	// A deadline in the past makes a dump fail, so that its rest is not read.
	stop := context.AfterFunc(ctx, func() { _ = dumps.SetReadDeadline(time.Unix(1, 0)) })
	listed := new(Flow) // one for all: stale is a function value, so that each of its arguments is on the heap
	var refused error   // the last one; others hardly differ
	err = t.dump(of, q, func(f Flow) error {
		seen++
		*listed = f
		all = all || !q.selects(listed)
		if !stale(listed) {
			return nil
		}
		ok, err := t.delete(listed)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if ok {
			deleted++
		} else if err != nil { // the others may go
			refused = err
		}
		return nil
	})
	if !stop() { // the deadline is over from now on
		err = errors.Join(ctx.Err(), err)
	}
	if err = errors.Join(err, refused); err != nil {
		t.close()
	}
	return seen, deleted, all, err
}

// dump calls each with the flows of a listing. After an error, its rest is not read.
func (t *Table) dump(of model.Family, q Filter, each func(Flow) error) error {
	m, err := q.listing(of)
	if err == nil {
		_, err = t.dumps.Send(m)
	}
	if err == nil {
		for m, failed := range t.dumps.ReceiveIter() {
			var f Flow
			if err = failed; err == nil {
				f, err = parseFlow(m.Data)
			}
			if err == nil {
				err = each(f)
			}
			if err != nil {
				_ = t.dumps.SetReadDeadline(time.Unix(1, 0))
				break
			}
		}
	}
	if err != nil {
		return fmt.Errorf("list %v flows: %w", of, err)
	}
	return nil
}

// delete deletes a flow, and reports whether it still existed.
func (t *Table) delete(f *Flow) (deleted bool, err error) {
	if err := t.open(&t.deletions); err != nil {
		return false, err
	}
	m, err := f.deletion()
	if err == nil {
		err = t.deletions.SetReadDeadline(time.Now().Add(patience))
	}
	if err == nil {
		_, err = t.deletions.Execute(m)
	}
	switch {
	case errors.Is(err, os.ErrNotExist): // it ended by itself
		return false, nil
	case err != nil:
		return false, fmt.Errorf("delete a flow: %w", err)
	}
	return true, nil
}
