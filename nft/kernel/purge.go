package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
	"github.com/vmapd/vmapd/nft/compile"
)

// Clients of endpoints that a batch has taken away are deleted behind it, and beside Apply: the kernel needs 0.3 s to
// list 60,000 clients. It is one plain pass. A client that it misses, because the map changes while it is read or a
// batch fails, is deleted by its own next packet, see nft.RemovedEndpoints.

// note adds the maps that a batch asks to purge.
func (b *Backend) note(st *familyState, changes *batch.Batch) {
	for _, p := range changes.Purge {
		st.mustPurge(p)
	}
	if len(st.purges) > 0 {
		select {
		case b.stale <- struct{}{}:
		default:
		}
	}
}

func (st *familyState) mustPurge(p compile.Purge) {
	p.Timeout = p.Timeout || st.purges[p.Map()].Timeout
	if st.purges == nil {
		st.purges = map[string]compile.Purge{}
	}
	st.purges[p.Map()] = p
}

// RunPurges deletes the clients of removed endpoints until ctx ends, beside Apply. What fails is logged, and done with
// the next ones.
func (b *Backend) RunPurges(ctx context.Context) {
	for {
		if err := b.Purge(ctx); err != nil && ctx.Err() == nil {
			b.log.Warn("not all clients of removed endpoints are deleted; their next packets are dropped once",
				slog.Any("err", err))
		}
		select {
		case <-ctx.Done():
			return
		case <-b.stale:
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
		for _, name := range slices.Sorted(maps.Keys(purges)) {
			err := b.purgeMap(ctx, st, purges[name])
			if err == nil || errors.Is(err, unix.ENOENT) { // the table may be gone
				continue
			}
			errs = append(errs, fmt.Errorf("purge %v map %s: %w", st.family, name, err))
			b.reader.close()
			b.mu.Lock()
			st.mustPurge(purges[name])
			b.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

// purgeMap purges one map. All clients are read before one is changed: the kernel goes on with a list behind as many
// elements as it has listed, and would leave out as many as are gone by then (nft_rhash_walk).
func (b *Backend) purgeMap(ctx context.Context, st *familyState, p compile.Purge) error {
	reader, err := b.reader.open(b.dialer)
	if err != nil {
		return err
	}
	var all []client
	err = reader.readClients(st.family, p.Map(), func(some []client) error {
		all = append(all, some...)
		return ctx.Err()
	})
	for some := range slices.Chunk(all, clientsPerBatch) {
		if err == nil {
			err = b.fitClients(st, p, some)
		}
	}
	return err
}

// fitClients changes those of some clients that do not fit the rules by now.
func (b *Backend) fitClients(st *familyState, p compile.Purge, some []client) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if st.left == nil {
		return nil
	}
	wanted, ok := st.left.Clients(p)
	var changed []client
	for _, c := range some {
		if now := c.fit(p, wanted); now != c {
			changed = append(changed, now)
		}
	}
	if len(changed) == 0 || !ok {
		return nil
	}
	set := nft.DeclarationOf(p.Map())
	return b.conn.changeClients(st.family, &set, changed)
}

// reader is a connection that lists clients or counters. It lasts, as the end of a connection waits until the kernel
// has freed the objects of the batches before (nft_rcv_nl_event), and no batch is taken meanwhile.
type reader struct {
	conn *conn // nil: none yet
}

// open returns the connection.
func (r *reader) open(d dialer) (*conn, error) {
	if r.conn == nil {
		c, err := d.dial()
		if err != nil {
			return nil, err
		}
		r.conn = c
	}
	return r.conn, nil
}

// close ends the connection, which may have the rest of a list.
func (r *reader) close() {
	if r.conn != nil {
		_ = r.conn.close()
		r.conn = nil
	}
}
