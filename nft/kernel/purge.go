package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/compile"
)

// Clients of endpoints that a batch has taken away are deleted behind it, and beside Apply: the kernel needs 0.3 s to
// list 60,000 clients. A map is read once. While other batches are committed, that misses 2 % of 20,000 clients: each
// is deleted by its own next packet, see nft.GoneEndpoints.

// purgeAgain is when a purge that failed is tried again.
const purgeAgain = 10 * time.Second

// mustPurge adds maps to purge.
func (st *familyState) mustPurge(purges ...compile.Purge) {
	for _, p := range purges {
		if st.purges == nil {
			st.purges = map[compile.Purge]bool{}
		}
		st.purges[p] = true
	}
}

// RunPurges deletes the clients of removed endpoints until ctx ends, beside Apply. A failure is logged and tried again.
func (b *Backend) RunPurges(ctx context.Context) {
	said := ""
	for {
		var again <-chan time.Time
		err := b.Purge(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			again = time.After(purgeAgain)
			if said != err.Error() {
				said = err.Error()
				b.wants.Log.Warn("not all clients of removed endpoints are deleted; retrying", slog.Any("err", err))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-b.stale:
		case <-again:
		}
	}
}

// Purge deletes the clients of endpoints that earlier calls of Apply have removed, and gives those that stay a timeout
// that has changed. It may run beside Apply, which waits for a millisecond at most, but not beside itself.
func (b *Backend) Purge(ctx context.Context) error {
	var errs []error
	for _, st := range b.families {
		b.mu.Lock()
		purges := st.purges
		st.purges = nil
		b.mu.Unlock()
		for p := range purges {
			err := b.purgeMap(ctx, st, p)
			if err == nil || errors.Is(err, unix.ENOENT) { // the table may be gone
				continue
			}
			errs = append(errs, fmt.Errorf("purge %v map %s: %w", st.family, p.Map(), err))
			b.mu.Lock()
			st.mustPurge(p)
			b.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

// purgeMap purges one map. All clients are read before one is changed: the kernel goes on with a list behind as many
// elements as it has listed, and would leave out as many as are gone by then (nft_rhash_walk).
func (b *Backend) purgeMap(ctx context.Context, st *familyState, p compile.Purge) error {
	b.mu.Lock()
	wanted, ok := st.clients(p)
	b.mu.Unlock()
	if !ok {
		return nil
	}
	var misfits []client
	err := b.reader.use(func(c *conn) error {
		return c.elements(st.family, p.Map(), func(element []byte) error {
			if c := readClient(element); c.fit(wanted) != c {
				misfits = append(misfits, c)
			}
			return ctx.Err()
		})
	})
	if err != nil {
		return err
	}
	for some := range slices.Chunk(misfits, clientsPerBatch) {
		if err := b.fitClients(st, p, some); err != nil {
			return err
		}
	}
	return nil
}

// clients returns which clients stay by the present rules, or false if the map is gone, or what the kernel has is
// unknown.
func (st *familyState) clients(p compile.Purge) (compile.Clients, bool) {
	if !st.known {
		return compile.Clients{}, false
	}
	return st.read().ruleset.Clients(p)
}

// fitClients changes those of some clients that do not fit the rules by now.
func (b *Backend) fitClients(st *familyState, p compile.Purge, some []client) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	wanted, ok := st.clients(p)
	if !ok {
		return nil
	}
	var changed []client
	for _, c := range some {
		if now := c.fit(wanted); now != c {
			changed = append(changed, now)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	set := nft.DeclarationOf(p.Map())
	return b.conn.changeClients(st.family, &set, changed)
}

// reader is a connection that lists clients and counters. It lasts, as the end of a connection waits until the kernel
// has freed the objects of the batches before (nft_rcv_nl_event), and no batch is taken meanwhile.
type reader struct {
	dialer
	mu   sync.Mutex // held while a list is read
	conn *conn      // nil: none yet
}

// use reads by the connection. After an error, which may leave the rest of a list there, the connection is closed.
func (r *reader) use(read func(*conn) error) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn == nil {
		if r.conn, err = r.dial(); err != nil {
			return err
		}
	}
	if err = read(r.conn); err != nil {
		_ = r.conn.close()
		r.conn = nil
	}
	return err
}

func (r *reader) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn != nil {
		_ = r.conn.close()
		r.conn = nil
	}
}
