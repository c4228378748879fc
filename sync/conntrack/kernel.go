package conntrack

import (
	"cmp"
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
	msgGet    = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1
	msgDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2
)

// Table is the connection tracking table of a network namespace. Its connections stay open from their first use on: the
// kernel accepts no nftables batch while it ends one (nft_rcv_nl_event). The zero value is the current namespace's. Any
// number of goroutines may use it, one after the other.
type Table struct {
	Dial func() (*netlink.Conn, error) // opens connections to another kernel, in tests; nil: to this machine's

	mu               sync.Mutex
	dumps, deletions *netlink.Conn // nil: not open. A dump must not mix with other replies
}

// List calls each with the flows of a family that a filter selects, and on kernels before Linux 5.8 with all others,
// too. When ctx ends, it fails. each must not keep the flow. After an error, the next call has new connections, because
// an answer may not have arrived yet.
func (t *Table) List(ctx context.Context, of model.Family, q Filter, each func(*Flow)) (err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer func() {
		if err != nil {
			t.close()
			err = fmt.Errorf("list %v flows: %w", of, err)
		}
	}()
	m, err := q.listing(of)
	if err = cmp.Or(err, t.open()); err == nil {
		_, err = t.dumps.Send(m)
	}
	if err != nil {
		return err
	}
	listed := new(Flow) // one for all: each is a function value, so that its argument is on the heap
	for m, err := range t.dumps.ReceiveIter() {
		var invalid error
		*listed, invalid = parseFlow(m.Data)
		if err = cmp.Or(ctx.Err(), err, invalid); err != nil {
			_ = t.dumps.SetReadDeadline(time.Unix(1, 0)) // in the past: the rest is not read
			return err
		}
		each(listed)
	}
	return ctx.Err()
}

// sweep deletes the stale flows of a family that a filter selects.
func (t *Table) sweep(ctx context.Context, of model.Family, q Filter, stale func(*Flow) bool) (deleted int, err error) {
	var refused error // the last one; others hardly differ
	err = t.List(ctx, of, q, func(f *Flow) {
		if !stale(f) {
			return
		}
		m, err := f.deletion()
		if err == nil {
			_, err = t.deletions.Execute(m)
		}
		switch {
		case err == nil:
			deleted++
		case !errors.Is(err, os.ErrNotExist): // else it ended by itself
			refused = fmt.Errorf("delete a flow: %w", err) // the others may go
		}
	})
	return deleted, errors.Join(err, refused)
}

func (t *Table) open() (err error) {
	dial := t.Dial
	if dial == nil {
		dial = func() (*netlink.Conn, error) {
			const largest = 32 << 10 // datagram of a dump, in bytes
			return netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{MessageBufferSize: largest})
		}
	}
	for _, c := range []**netlink.Conn{&t.dumps, &t.deletions} {
		if *c == nil && err == nil {
			*c, err = dial()
		}
	}
	return err
}

func (t *Table) close() {
	for _, c := range []**netlink.Conn{&t.dumps, &t.deletions} {
		if *c != nil {
			_ = (*c).Close()
			*c = nil
		}
	}
}
