package kernel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// Clients whose endpoint a batch takes away are forgotten. Those in small maps are deleted by the
// batch itself. It does not wait for large ones: the kernel needs 0.3 s to list 60,000 clients. A
// goroutine of the backend reads them beside Apply, and takes Apply's connection for a few
// milliseconds at a time. It also finds clients that packets noted meanwhile. Until it has, the set
// nft.GoneEndpoints, which the batch fills, keeps all of them from the endpoint, those of UDP only
// if the batch does not delete them.

const (
	// purgePasses bounds how often a map is read again because something in it had to
	// change. One reading may miss clients: the map changes while it is read.
	purgePasses = 20
	// purgeAgain is the least time between the two purges of a map. Maps are purged for the
	// second time together, because that takes waiting, see letPacketsPass.
	purgeAgain = 3 * time.Second
	// A purge that failed is tried again after purgeRetry, then after twice that time and so on.
	purgeRetry, slowestPurgeRetry = 100 * time.Millisecond, 30 * time.Second
	// clientsAtOnce and mapsAtOnce bound what is read before a batch: some milliseconds.
	clientsAtOnce, mapsAtOnce = 1500, 30
)

// purger is the goroutine that purges maps.
type purger struct {
	reader  reader
	running sync.WaitGroup
	stop    context.CancelFunc // nil: it was not started
	wake    chan struct{}      // of capacity 1
}

// close ends the goroutine.
func (p *purger) close() {
	if p.stop != nil {
		p.stop()
	}
	p.running.Wait()
	p.reader.close()
}

// pendingPurge is a map to be purged after a batch that was not sent before start.
type pendingPurge struct {
	nft.Purge
	st     *familyState
	of     *nft.Ruleset // whose endpoints Purge has
	start  time.Time
	again  bool // it was purged once
	due    time.Time
	failed time.Duration // how long it waits after the last failure
	late   bool          // see Options.ForgottenLate; protected by Backend.mu
}

// reader is a connection that lists clients, counters or the objects of others, beside the connection
// that changes ours. It lasts, as the
// end of a connection waits until the kernel has freed the objects of the batches before
// (nft_rcv_nl_event), for ten milliseconds and more in which no batch is taken.
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

// forgetAtOnce adds to a batch the deletion of clients whose endpoint it takes away, or that an earlier process left with one
// that was gone before, if reading them takes no longer than the batch may wait. Whatever fails here is left to purge.
func (b *Backend) forgetAtOnce(batch *nft.Batch) {
	taken, found := batch.Ending()
	if len(taken) > mapsAtOnce || len(taken)+len(found) == 0 || !b.fewBusy.TryLock() {
		return
	}
	found = found[:min(len(found), mapsAtOnce-len(taken))]
	switch err := b.forgetFew(batch, taken, found); {
	case errors.Is(err, errEnough):
		b.purger.running.Go(func() {
			defer b.fewBusy.Unlock()
			if err := b.few.conn.drain(); err != nil {
				b.few.close()
			}
		})
		return
	case err != nil:
		b.few.close()
	}
	b.fewBusy.Unlock()
}

// forgetFew reads clients and adds their deletion to a batch. It returns errEnough if they are many.
func (b *Backend) forgetFew(batch *nft.Batch, taken, found []nft.Purge) error {
	c, err := b.few.open(b.dialer)
	if err != nil {
		return err
	}
	read := 0
	forget := func(p nft.Purge) error {
		var gone []nft.Element
		err := c.readClients(batch.Family, p.Map, func(list []client) error {
			if read += len(list); read > clientsAtOnce {
				return errEnough
			}
			for _, c := range list {
				// One that times out meanwhile would make the batch fail before Linux 6.3.
				if !p.Keep[c.Data] && c.left > time.Second {
					gone = append(gone, c.Element)
				}
			}
			return nil
		})
		if err == nil && len(gone) > 0 {
			batch.Forget(p, gone)
		}
		return err
	}
	for _, p := range taken {
		if err := forget(p); err != nil {
			return err
		}
	}
	batch.Forgotten()
	for _, p := range found {
		if err := forget(p); err != nil {
			return err
		}
	}
	return nil
}

// purge notes the maps that a batch asks to purge, and starts the goroutine for them.
func (b *Backend) purge(st *familyState, batch *nft.Batch, start time.Time) {
	for _, name := range batch.DeleteSets {
		delete(st.purges, name)
	}
	if len(batch.Purge) == 0 {
		return
	}
	if st.purges == nil {
		st.purges = map[string]*pendingPurge{}
	}
	for _, p := range batch.Purge {
		one := &pendingPurge{Purge: p, st: st, of: st.left, start: start}
		was := st.purges[p.Map]
		if was != nil && p.Timeout == nil {
			one.Timeout, one.start = was.Timeout, was.start
		}
		one.late = p.Late || was != nil && was.late
		st.purges[p.Map] = one
	}
	if b.purger.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		b.purger.stop, b.purger.wake = stop, make(chan struct{}, 1)
		b.purger.running.Go(func() { b.runPurges(ctx) })
	}
	select {
	case b.purger.wake <- struct{}{}:
	default:
	}
}

// runPurges purges maps until ctx ends.
func (b *Backend) runPurges(ctx context.Context) {
	said := ""
	for {
		if b.rest != nil {
			b.rest()
		}
		if due := b.duePurges(); len(due) > 0 {
			err := b.purgeMaps(ctx, due)
			if ctx.Err() != nil {
				return
			}
			switch {
			case err == nil:
				said = ""
			case said != err.Error():
				said = err.Error()
				b.log.LogAttrs(ctx, slog.LevelWarn, "not all clients of removed endpoints are forgotten; retrying", slog.Any("err", err))
			}
		}
		var timer <-chan time.Time
		if next := b.nextPurge(); !next.IsZero() {
			timer = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return
		case <-b.purger.wake:
		case <-timer:
		}
	}
}

// duePurges returns the maps that are due, those of the latest change first.
func (b *Backend) duePurges() (due []*pendingPurge) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for _, st := range b.families {
		for _, p := range st.purges {
			if !p.due.After(now) {
				due = append(due, p)
			}
		}
	}
	slices.SortFunc(due, func(a, b *pendingPurge) int {
		return cmp.Or(b.start.Compare(a.start), cmp.Compare(a.st.family, b.st.family), strings.Compare(a.Map, b.Map))
	})
	return due
}

// nextPurge returns when the next map is due; zero: there is none.
func (b *Backend) nextPurge() (next time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := true
	for _, st := range b.families {
		for _, p := range st.purges {
			if first || p.due.Before(next) {
				next, first = p.due, false
			}
		}
	}
	if !first && next.IsZero() {
		next = time.Now()
	}
	return next
}

// purgeMaps purges maps, over a connection for reading and that of Apply for writing.
func (b *Backend) purgeMaps(ctx context.Context, due []*pendingPurge) error {
	var waited error
	if slices.ContainsFunc(due, func(p *pendingPurge) bool { return p.again }) {
		waited = b.letPacketsPass()
	}
	const most = 10
	var errs []error
	for _, p := range due {
		if ctx.Err() != nil {
			break
		}
		err := waited
		var reader *conn
		if err == nil {
			reader, err = b.purger.reader.open(b.dialer)
		}
		if err == nil {
			err = b.purgeMap(ctx, reader, p)
		}
		if late := b.settled(p, err); late && b.late != nil {
			b.late(p.st.family, p.ServicePort())
		}
		if err == nil {
			continue
		}
		if len(errs) < most {
			errs = append(errs, &model.FamilyError{Family: p.st.family, Err: fmt.Errorf("purge map %s: %w", p.Map, err)})
		}
		b.purger.reader.close()
	}
	return errors.Join(errs...)
}

// settled notes that a map was purged, or could not be. The second purges of maps fall on the
// same moments. It reports whether clients were forgotten late, or may have timed out while purges failed.
func (b *Backend) settled(p *pendingPurge, err error) (late bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		late, p.late = p.late, false
	}
	switch {
	case err != nil:
		p.failed = min(max(2*p.failed, purgeRetry), slowestPurgeRetry)
		p.due = time.Now().Add(p.failed)
		p.late = true
	case !p.again:
		p.again, p.failed = true, 0
		p.due = time.Now().Add(2 * purgeAgain).Truncate(purgeAgain)
	case p.isPending():
		delete(p.st.purges, p.Map)
	}
	return late
}

// isPending reports whether no later batch made the purge unnecessary or replaced it.
func (p *pendingPurge) isPending() bool { return p.st.purges[p.Map] == p }

// purgeMap reads one map and changes the clients that must change. It does so when all is read: the
// kernel goes on with a list behind as many elements as it has listed, and would leave out as many
// as are gone by then (nft_rhash_walk). To forget 20,000 of 60,000 clients took twice as long.
func (b *Backend) purgeMap(ctx context.Context, reader *conn, p *pendingPurge) error {
	for range purgePasses {
		read, wanted := time.Now(), b.wantedClients(p)
		if wanted == nil {
			return nil
		}
		var misfits []client
		reader.interrupted = false
		err := reader.readClients(p.st.family, p.Map, func(list []client) error {
			for _, change := range wanted.changes(list) {
				misfits = append(misfits, change.old)
			}
			return ctx.Err()
		})
		if err != nil {
			return err
		}
		for some := range slices.Chunk(misfits, clientsPerBatch) {
			if err := b.fitClients(ctx, p, some, read); err != nil {
				return err
			}
		}
		if len(misfits) == 0 && !reader.interrupted {
			return nil
		}
	}
	return nil
}

// wantedClients returns a purge as the present rules need it, nil if they do not.
func (b *Backend) wantedClients(p *pendingPurge) *pendingPurge {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !p.renew() {
		return nil
	}
	return &pendingPurge{Purge: p.Purge, start: p.start}
}

// renew brings the endpoints up to date. It reports whether the map is still to be purged.
func (p *pendingPurge) renew() bool {
	if !p.isPending() {
		return false
	}
	if p.of != p.st.left {
		now, ok := p.st.left.Renewed(p.Purge)
		if !ok {
			delete(p.st.purges, p.Map)
			return false
		}
		p.Purge, p.of = now, p.st.left
	}
	return true
}

// fitClients changes those of some clients that do not fit the rules by now.
func (b *Backend) fitClients(ctx context.Context, p *pendingPurge, some []client, read time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() != nil || !p.renew() {
		return ctx.Err()
	}
	changes, passed := p.changes(some), time.Since(read)
	for len(changes) > 0 && changes[0].old.left < passed {
		changes = changes[1:] // gone by now; if not, the next reading tells
	}
	if slices.ContainsFunc(changes, func(c clientChange) bool { return c.now == nil }) {
		p.late = true
	}
	set := nft.DeclarationOf(p.Map)
	return b.conn.changeClients(p.st.family, &set, changes)
}

// letPacketsPass returns when no packet is on its way any more that met the rules of
// before: it could still note an endpoint that has just been taken away, and its client
// would be sent there for hours. The kernel runs rules within an RCU read-side critical section, and
// membarrier waits for those. Without it, a batch that the kernel forgets waits for them, too
// (__nf_tables_abort: synchronize_rcu), and makes other batches wait. Packets held by NFQUEUE are
// not waited for.
func (b *Backend) letPacketsPass() error {
	const global = 1 // MEMBARRIER_CMD_GLOBAL, which does nothing on a single processor
	if runtime.NumCPU() > 1 && !b.inMemory {
		if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0); errno == 0 {
			return nil
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	// The grace period is the whole machine's: it does not matter for which family.
	if err := b.conn.tryTable(b.families[0].family, 0); err != nil {
		return fmt.Errorf("wait for packets: %w", err)
	}
	return nil
}
