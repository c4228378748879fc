package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// Options say how a Backend works. The zero value is good.
type Options struct {
	Log *slog.Logger // nil: nothing is logged
	// NetNS is a file descriptor of the network namespace to work in; 0 means that of
	// the thread which calls Open.
	NetNS int
	// Unowned makes tables that others may change, as all are before Linux 6.9; see
	// [Backend.Watch]. It is for tests.
	Unowned bool
}

// Backend keeps this node's nftables tables. It is not safe for concurrent use.
type Backend struct {
	log      *slog.Logger
	conn     *conn
	netns    int
	families []familyState
}

// familyState is what is known about one family's table.
type familyState struct {
	family model.Family
	flags  uint32       // with which tables are made
	have   *nft.Ruleset // what the kernel has; nil: unknown, read before the next batch
	owned  bool         // the table is claimed
	// unreadable: the table could not be read at the last try, for no reason that the
	// kernel gave.
	unreadable bool
	stats      Stats
}

// Stats count what was sent for one family since Open.
type Stats struct {
	Batches    int
	Operations int
}

// Open connects to the kernel and finds out what it can do. A family that the kernel
// does not have (IPv6 switched off) is left out; if neither can be used, the error says
// what is missing.
func Open(o Options) (*Backend, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c, err := dial(o.NetNS)
	if err != nil {
		return nil, err
	}
	b := &Backend{log: o.Log, conn: c, netns: o.NetNS}
	var missing []error
	for _, f := range model.Families {
		flags, err := c.probe(f)
		if errors.Is(err, unix.EPERM) {
			err = fmt.Errorf("program nftables: CAP_NET_ADMIN is needed, as root or as the container's capability NET_ADMIN: %w", unix.EPERM)
			return nil, errors.Join(err, c.close())
		}
		if err != nil {
			missing = append(missing, err)
			b.log.LogAttrs(context.Background(), slog.LevelWarn, "IP family left out",
				slog.String("family", f.String()), slog.Any("err", err))
			continue
		}
		if o.Unowned {
			flags = 0
		}
		b.families = append(b.families, familyState{family: f, flags: flags})
	}
	if len(b.families) == 0 {
		return nil, errors.Join(errors.Join(missing...), c.close())
	}
	return b, nil
}

// Close ends the connection. The tables stay.
func (b *Backend) Close() error { return b.conn.close() }

// Owned reports whether this kernel protects our tables from others.
func (b *Backend) Owned() bool { return len(b.families) > 0 && b.families[0].flags&tableFlagOwner != 0 }

// Stats returns what was sent for a family.
func (b *Backend) Stats(f model.Family) Stats {
	for _, s := range b.families {
		if s.family == f {
			return s.stats
		}
	}
	return Stats{}
}

// Resync makes the next Apply read the kernel's tables first, and repair what differs.
func (b *Backend) Resync() {
	for i := range b.families {
		b.families[i].have = nil
	}
}

// Apply makes the kernel's tables match s. What fails for one family leaves that
// family's rules as they were and does not concern the other; the next Apply reads what
// is there and goes on from it. A service port that the kernel refuses is left out, and
// named in the error; the others are programmed.
func (b *Backend) Apply(ctx context.Context, s *model.Snapshot) error {
	var errs []error
	for i := range b.families {
		if err := ctx.Err(); err != nil {
			return err
		}
		st := &b.families[i]
		if err := b.applyFamily(ctx, st, s.Family(st.family)); err != nil {
			st.have = nil
			errs = append(errs, fmt.Errorf("%v: %w", st.family, err))
		}
	}
	err := errors.Join(errs...)
	if err != nil && !isReply(err) && !errors.Is(err, ErrOwned) {
		// The connection itself may be broken. Another one can't hurt: what was owned
		// becomes free with the old one's end, and is claimed again.
		err = errors.Join(err, b.redial())
	}
	return err
}

func (b *Backend) redial() error {
	_ = b.conn.close()
	c, err := dial(b.netns)
	if err != nil {
		return err
	}
	b.conn = c
	for i := range b.families {
		b.families[i].owned = false
		b.families[i].have = nil
	}
	return nil
}

func (b *Backend) applyFamily(ctx context.Context, st *familyState, s *model.FamilySnapshot) error {
	start := time.Now()
	var want *nft.Ruleset
	var batch *nft.Batch
	if st.have != nil {
		want = nft.Compile(st.have, s)
		batch = nft.Diff(st.have, want)
	} else {
		var err error
		if want, batch, err = b.compareWithKernel(ctx, st, s); err != nil {
			return err
		}
	}
	if batch.Empty() {
		st.have = want
		return b.conn.settle(st.family, batch.Settle, start)
	}
	operations, cold := batch.Len(), batch.CreateTable
	switch err := b.send(st, batch); {
	case cold && errors.Is(err, unix.EOPNOTSUPP):
		return &UnsupportedError{Feature: "reject in prerouting", Since: "5.9", Family: st.family.String(), Err: err}
	case err != nil:
		return err
	}
	st.have = want
	st.stats.Batches++
	st.stats.Operations += operations
	b.log.LogAttrs(ctx, slog.LevelDebug, "applied", slog.String("family", st.family.String()),
		slog.Int("operations", operations), slog.Duration("took", time.Since(start)))
	return b.conn.settle(st.family, batch.Settle, start)
}

// compareWithKernel finds the difference to what is really there.
func (b *Backend) compareWithKernel(ctx context.Context, st *familyState, s *model.FamilySnapshot) (*nft.Ruleset, *nft.Batch, error) {
	table, err := b.conn.read(st.family, s)
	// To replace a table costs connections, so it takes a second try over a new
	// connection to believe that the table is to blame.
	suspect := isUnreadable(err)
	unreadable := suspect && st.unreadable
	st.unreadable = suspect
	if err != nil && !unreadable {
		return nil, nil, err
	}
	var before nft.Slots
	if table != nil {
		before = table
	}
	want := nft.Compile(before, s)
	batch := nft.DiffTable(table, want)
	if unreadable {
		b.log.LogAttrs(ctx, slog.LevelWarn, "table replaced: it holds what no version of this program writes",
			slog.String("family", st.family.String()), slog.Any("err", err))
		batch.DeleteTable = true
	}
	if kept, ok := want.KeepUnused(table, batch); ok {
		settle := batch.Settle
		want, batch = kept, nft.Diff(kept, kept)
		batch.Settle = settle
	}
	if err := b.claim(st, table != nil && !batch.DeleteTable); err != nil {
		return nil, nil, err
	}
	return want, batch, nil
}

// claim takes over a table that an earlier process left. It changes nothing in it.
func (b *Backend) claim(st *familyState, exists bool) error {
	if st.owned || st.flags == 0 || !exists {
		return nil
	}
	m, err := tableMessage(st.family, nft.TableName, st.flags)
	if err != nil {
		return err
	}
	switch err := b.conn.exchange([]netlinkMessage{m}, true); {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EOPNOTSUPP) && b.ownedByOther(st):
		return fmt.Errorf("table %s is %w", nft.TableName, ErrOwned)
	case errors.Is(err, unix.EOPNOTSUPP):
		// Made by an earlier version or kernel, without the flags: it works unowned.
		return nil
	case err != nil:
		return fmt.Errorf("claim table %s: %w", nft.TableName, err)
	}
	st.owned = true
	return nil
}

func (b *Backend) ownedByOther(st *familyState) bool {
	t, err := b.conn.lib.ListTableOfFamily(nft.TableName, tableFamily(st.family))
	return err == nil && t.Flags&tableFlagOwner != 0 && t.Owner != b.conn.raw.PID()
}

// maxAhead is how many new endpoints go to the kernel at once, ahead of the batch: a
// bound for the time the kernel holds its lock, and for our memory.
const maxAhead = 20_000

// send carries out a batch.
func (b *Backend) send(st *familyState, batch *nft.Batch) error {
	if err := b.conn.makeTable(batch, nft.TableName, st.flags); err != nil {
		if errors.Is(err, unix.EPERM) {
			return fmt.Errorf("table %s is %w", nft.TableName, ErrOwned)
		}
		return fmt.Errorf("make table %s: %w", nft.TableName, err)
	}
	if batch.CreateTable {
		st.owned = st.flags != 0
	}
	var refused []error
	if batch.Len() > maxAhead {
		for _, ahead := range batch.Ahead(maxAhead) {
			bad, err := b.sendOthers(ahead)
			if err != nil {
				return err
			}
			batch.Without(bad.ports)
			refused = append(refused, bad.errs...)
		}
	}
	bad, err := b.sendOthers(batch)
	if err != nil {
		return err
	}
	if refused = append(refused, bad.errs...); len(refused) > 0 {
		return errors.Join(refused...)
	}
	t := b.conn.begin(batch.Family)
	t.deletions(batch)
	return t.commit()
}

// refusals are service ports that the kernel does not take.
type refusals struct {
	ports map[model.ServicePortName]bool
	errs  []error
}

// maxRefused bounds how many service ports are left out of one batch, one by one.
const maxRefused = 10

// sendOthers commits a batch. If one service port makes it fail, it commits the rest,
// and says which one that was.
func (b *Backend) sendOthers(batch *nft.Batch) (refusals, error) {
	bad := refusals{ports: map[model.ServicePortName]bool{}}
	for {
		err := b.conn.commit(batch, elementsPerMessage)
		var failed *BatchError
		if err == nil || !errors.As(err, &failed) || failed.port == nil || len(bad.errs) == maxRefused {
			return bad, err
		}
		// A message holds many elements. One element each tells whose it is.
		if err = b.conn.commit(batch, 1); err == nil {
			return bad, nil
		}
		if !errors.As(err, &failed) || failed.port == nil {
			return bad, err
		}
		bad.ports[failed.port.Name] = true
		bad.errs = append(bad.errs, err)
		batch.Without(bad.ports)
	}
}

func (c *conn) commit(b *nft.Batch, perMessage int) error {
	t := c.begin(b.Family)
	if err := t.chains(b); err != nil {
		return err
	}
	if err := t.elements(b.Delete, perMessage, false); err != nil {
		return err
	}
	if err := t.elements(b.Add, perMessage, true); err != nil {
		return err
	}
	return t.commit()
}

// Remove deletes our tables.
func (b *Backend) Remove(context.Context) error {
	var errs []error
	for i := range b.families {
		st := &b.families[i]
		st.have, st.owned = nil, false
		errs = append(errs, b.conn.removeTable(st.family, nft.TableName))
	}
	return errors.Join(errs...)
}
