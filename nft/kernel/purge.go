package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
	"github.com/vmapd/vmapd/nft/compile"
)

// Clients of endpoints that a batch has taken away are deleted behind it, and beside Apply: the kernel needs 0.3 s to
// list 60,000 clients. A client that this misses, since the map changes while it is read, is deleted by its own next
// packet, see nft.GoneEndpoints.

const (
	// purgeReadings is how often a map is read at most. While other batches are committed, one reading missed 2 % of
	// 20,000 clients.
	purgeReadings = 3
	// purgeAgain is when a purge that failed is tried again.
	purgeAgain = 10 * time.Second
)

// A pendingPurge is a map to be purged, with other rules before start.
type pendingPurge struct {
	compile.Purge
	start time.Time
}

// note adds the maps that a batch asks to purge.
func (b *Backend) note(st *familyState, changes *batch.Batch, start time.Time) {
	for _, p := range changes.Purge {
		st.mustPurge(pendingPurge{p, start})
	}
	if len(st.purges) > 0 {
		select {
		case b.stale <- struct{}{}:
		default:
		}
	}
}

func (st *familyState) mustPurge(p pendingPurge) {
	if was := st.purges[p.Map()]; was.Timeout && !p.Timeout {
		p.Timeout, p.start = true, was.start
	}
	if st.purges == nil {
		st.purges = map[string]pendingPurge{}
	}
	st.purges[p.Map()] = p
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
				b.log.Warn("not all clients of removed endpoints are deleted; retrying", slog.Any("err", err))
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
// that has changed. It may run beside Apply, which waits for a millisecond at most.
func (b *Backend) Purge(ctx context.Context) error {
	b.purging.Lock()
	defer b.purging.Unlock()
	var errs []error
	for _, st := range b.families {
		for _, p := range b.takePurges(st) {
			err := b.purgeMap(ctx, st, p)
			if err == nil || errors.Is(err, unix.ENOENT) { // the table may be gone
				continue
			}
			errs = append(errs, fmt.Errorf("purge %v map %s: %w", st.family, p.Map(), err))
			b.reader.close()
			b.mu.Lock()
			st.mustPurge(p)
			b.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

// takePurges takes the maps of a family that are to be purged.
func (b *Backend) takePurges(st *familyState) []pendingPurge {
	b.mu.Lock()
	defer b.mu.Unlock()
	purges := st.purges
	st.purges = nil
	return slices.SortedFunc(maps.Values(purges), func(a, b pendingPurge) int { return strings.Compare(a.Map(), b.Map()) })
}

// purgeMap purges one map.
func (b *Backend) purgeMap(ctx context.Context, st *familyState, p pendingPurge) error {
	for range purgeReadings {
		misfits, err := b.misfits(ctx, st, p)
		if err != nil {
			return err
		}
		if len(misfits) == 0 && !b.reader.wasInterrupted() {
			return nil
		}
		for some := range slices.Chunk(misfits, clientsPerBatch) {
			if err := b.fitClients(ctx, st, p, some); err != nil {
				return err
			}
		}
	}
	return nil
}

// misfits reads the clients that must change. All are read before one is changed: the kernel goes on with a list behind
// as many elements as it has listed, and would leave out as many as are gone by then (nft_rhash_walk).
func (b *Backend) misfits(ctx context.Context, st *familyState, p pendingPurge) (list []client, err error) {
	b.mu.Lock()
	wanted, ok := st.clients(p)
	b.mu.Unlock()
	if !ok {
		return nil, nil
	}
	reader, err := b.reader.open(b.dialer)
	if err != nil {
		return nil, err
	}
	reader.interrupted = false
	err = reader.readClients(st.family, p.Map(), func(some []client) error {
		for _, c := range some {
			if c.fit(p, wanted) != c {
				list = append(list, c)
			}
		}
		return ctx.Err()
	})
	return list, err
}

// clients returns which clients stay by the present rules, or false if the map is gone, or what the kernel has is
// unknown.
func (st *familyState) clients(p pendingPurge) (compile.Clients, bool) {
	if !st.known {
		return compile.Clients{}, false
	}
	return st.read().ruleset.Clients(p.Purge)
}

// fitClients changes those of some clients that do not fit the rules by now.
func (b *Backend) fitClients(ctx context.Context, st *familyState, p pendingPurge, some []client) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	wanted, ok := st.clients(p)
	if ctx.Err() != nil || !ok {
		return ctx.Err()
	}
	var changed []client
	for _, c := range some {
		if now := c.fit(p, wanted); now != c {
			changed = append(changed, now)
		}
	}
	if len(changed) == 0 {
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

// wasInterrupted reports whether the last list may lack something.
func (r *reader) wasInterrupted() bool { return r.conn != nil && r.conn.interrupted }

// close ends the connection, which may have the rest of a list.
func (r *reader) close() {
	if r.conn != nil {
		_ = r.conn.close()
		r.conn = nil
	}
}
