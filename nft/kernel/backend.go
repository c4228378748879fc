package kernel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
	"github.com/vmapd/vmapd/nft/compile"
)

// Options configure a Backend. The zero value works.
type Options struct {
	Log *slog.Logger // nil: nothing is logged
	// NetNS is a file descriptor of the network namespace to work in, open until Close; 0 means that of the process.
	NetNS int
	// Unowned makes tables without an owner, as on kernels before Linux 6.9; see [Backend.Watch]. It is for tests.
	Unowned bool
	// Counters counts new connections to each service port, for [Backend.Connections]. A table without counters gets
	// them, and one that has them loses them, without being replaced and without a lost connection.
	Counters bool
	// Setting returns a setting of the kernel by its name below net/netfilter, see [nft.RetryTimeouts]. Timeout policies
	// have these as they were at the last comparison; nil: as they were when the table was made.
	Setting func(name string) (value uint32, ok bool)
	// FastPath lets packets take the fast path, see [nft.FastPath] and [Backend.SetDevices].
	FastPath bool

	// Dial opens connections to another kernel, which has no packets in flight; nil: to this machine's. It is for tests.
	Dial func() (Socket, error)
	// PieceSize is about how many operations on a table that was read are in one transaction, see [batch.Pieces]. 0 means
	// 8,000; other sizes are for tests.
	PieceSize int
}

// Backend keeps this node's nftables tables. It is not safe for concurrent use, except for
// ReadAhead, SetDevices, Connections, Table, Ruleset and Stats.
type Backend struct {
	wants    Options // with defaults
	conn     *conn
	devices  atomic.Pointer[[]string] // of the fast path, wanted
	families []*familyState
	ahead    sync.Once // of ReadAhead, unless the first Apply was earlier

	// reader is what Connections and Table read by, beside Apply. It lasts, as the end of a connection waits until the
	// kernel has freed the objects of the batches before (nft_rcv_nl_event), and no batch is taken meanwhile.
	reader  *conn
	reading sync.Mutex
}

// familyState is the state of one family's table.
type familyState struct {
	family model.Family
	flags  uint32 // with which tables are made

	lacks map[string]error // what the kernel lacks for an option, by the name of the feature

	known   bool       // the kernel has shared.ruleset; else the table is read before the next batch
	refused refused    // at the last Apply
	owned   bool       // the table is claimed
	ahead   *nft.Table // as ReadAhead has read it, for the first batch; nil: it has not
	purges  []compile.Purge
	devices *[]string // of the flowtable; nil: unknown

	mu     sync.Mutex
	shared shared
}

// shared is the part of the state that other goroutines read.
type shared struct {
	stats    Stats
	ruleset  *compile.Ruleset // that the last Apply left in the kernel; nil: none did, or it failed
	fastPath FastPath
}

func (st *familyState) update(change func(*shared)) {
	st.mu.Lock()
	defer st.mu.Unlock()
	change(&st.shared)
}

func (st *familyState) read() shared {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.shared
}

// Open connects to the kernel and probes its features. A family that the kernel lacks (IPv6 switched off) is left out;
// if it lacks both, the error is an [*UnsupportedError]. After another error, another Open may work.
func Open(o Options) (*Backend, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.PieceSize = cmp.Or(o.PieceSize, pieceSize)
	c, err := o.dial()
	if err != nil {
		return nil, err
	}
	reader, err := o.dial()
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	b := &Backend{wants: o, conn: c, reader: reader}
	if err := b.openFamilies(); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// openFamilies finds out which families the kernel has, and with what.
func (b *Backend) openFamilies() error {
	var missing []error
	for _, f := range model.Families {
		st := &familyState{family: f, lacks: map[string]error{}}
		flags, err := b.probe(st)
		if _, lacks := errors.AsType[*UnsupportedError](err); lacks {
			missing = append(missing, err)
			b.wants.Log.Warn("IP family left out", slog.String("family", f.String()), slog.Any("err", err))
			continue
		}
		if err != nil {
			return fmt.Errorf("program nftables: %w", err)
		}
		have, err := b.conn.table(f)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("look for table %s: %w", nft.TableName, err)
		}
		if !b.wants.Unowned && (err != nil || have&tableFlagPersist != 0) {
			st.flags = flags // else see claim
		}
		b.families = append(b.families, st)
	}
	if len(b.families) == 0 {
		return errors.Join(missing...)
	}
	return nil
}

// Close ends the connections. The tables stay.
func (b *Backend) Close() error { return errors.Join(b.conn.close(), b.reader.close()) }

// Owned reports whether the kernel protects our tables from others. It may be called before the first Apply.
func (b *Backend) Owned() bool {
	return !slices.ContainsFunc(b.families, func(st *familyState) bool { return st.flags == 0 })
}

// Resync makes the next Apply read the kernel's tables first, and repair what differs.
func (b *Backend) Resync() {
	for _, st := range b.families {
		st.known = false
	}
}

// ReadAhead reads the tables for the first Apply, while the caller finds out what to apply: those that an earlier
// process left, once they are claimed, as nobody else can change them then. After an error, Apply reads them.
func (b *Backend) ReadAhead() {
	b.ahead.Do(func() {
		for _, st := range b.families {
			if b.claim(st) == nil && st.owned {
				st.ahead, _ = b.conn.readTable(st.family)
			}
		}
	})
}

// Apply makes the kernel's tables match s. A failure in one family, a [model.FamilyError], leaves its rules as they
// were and does not affect the other; the next Apply reads the table and repairs it. Of a large batch, the pieces
// before the failed one stay. A service port that the kernel refuses stays as it was, and the error has it in Ports.
//
// At last, it deletes the clients of endpoints that were removed.
func (b *Backend) Apply(ctx context.Context, s *model.Snapshot) error {
	b.ahead.Do(func() {}) // waits for one that has begun
	var errs []error
	for _, st := range b.families {
		if err := ctx.Err(); err != nil {
			return err
		}
		errs = append(errs, b.applyFamily(st, s.Family(st.family)))
	}
	for _, st := range b.families {
		b.purge(st)
	}
	return errors.Join(errs...)
}

// applyFamily tries until only service ports that the kernel refuses are missing. A batch that the kernel refused may
// be for another table than it has: the next try reads that.
func (b *Backend) applyFamily(st *familyState, s *model.FamilySnapshot) error {
	st.refused.forget(s)
	for {
		known, before := st.known, st.read().ruleset
		want, err := b.reach(st, s.With(st.refused.was))
		st.known = err == nil
		if err == nil {
			break
		}
		isRefused := isReply(err) && !isTransient(err) && !errors.Is(err, ErrOwned)
		if !isRefused || !known && !st.refused.add(err, want, before) {
			st.purges, st.refused = nil, refused{}
			st.update(func(to *shared) { to.ruleset = nil })
			return &model.FamilyError{Family: st.family, Err: err}
		}
	}
	st.refused.s = s
	st.update(func(to *shared) { to.stats.Rejected = len(st.refused.was) })
	return st.refused.err(st.family)
}

// reach makes the kernel's table that of s, and returns the ruleset to reach.
func (b *Backend) reach(st *familyState, s *model.FamilySnapshot) (want *compile.Ruleset, err error) {
	start, before := time.Now(), st.read().ruleset
	var changes iter.Seq[*batch.Batch]
	isOurs := true // what changes is
	if st.known {
		want = before.Options.Compile(before, s)
		changes = slices.Values([]*batch.Batch{batch.Diff(before, want)})
	} else {
		st.purges, st.devices = nil, nil // the batch has all maps
		table := st.ahead
		if st.ahead = nil; table == nil {
			if err := b.claim(st); err != nil {
				return nil, err
			}
			if table, err = b.conn.readTable(st.family); err != nil {
				return nil, err
			}
		}
		want = b.options(st).Adopt(table, before, s)
		changes = prepared(batch.Pieces(table, want, b.wants.PieceSize))
		isOurs = before == nil || s != st.refused.s
	}
	operations := 0
	for piece := range changes {
		n, err := b.send(st, piece)
		operations += n
		if err != nil {
			return want, err
		}
		st.purges = append(st.purges, piece.Purge...)
	}
	b.conn.buffer = nil // the memory that pieces share
	st.update(func(to *shared) {
		to.ruleset = want
		if operations > 0 {
			to.stats.Batches++
			to.stats.Operations += uint64(operations)
		}
		if operations > 0 && !isOurs {
			to.stats.Repairs++
		}
	})
	if operations > 0 {
		b.wants.Log.Debug("applied", slog.String("family", st.family.String()),
			slog.Int("operations", operations), slog.Duration("took", time.Since(start)))
	}
	if want.Options.FastPath {
		b.applyDevices(st)
	}
	return want, nil
}

// Ruleset returns the ruleset that the last Apply left in the kernel; nil: there was none, or it failed. It may be
// called at any time.
func (b *Backend) Ruleset(f model.Family) *compile.Ruleset {
	return b.of(f).read().ruleset
}

// RetryLacks returns what the kernel lacks to choose an endpoint again for connections without an answer; nil: nothing.
func (b *Backend) RetryLacks() error {
	for _, st := range b.families {
		if err := st.lacks[retryNeeds]; err != nil {
			return err
		}
	}
	return nil
}

// of returns the state of a family, an empty one without flags and features if the kernel lacks it.
func (b *Backend) of(f model.Family) *familyState {
	for _, st := range b.families {
		if st.family == f {
			return st
		}
	}
	return &familyState{}
}

// claim takes over a table that an earlier process left, if there is one. A table without the flags, as nft makes of a
// listing that somebody saved, can have no owner until it is made anew: it is kept without.
func (b *Backend) claim(st *familyState) error {
	if st.owned || st.flags == 0 {
		return nil
	}
	if _, err := b.conn.table(st.family); errors.Is(err, unix.ENOENT) {
		return nil
	}
	m := b.conn.newBatch(st.family, nft.TableName)
	m.addTable(st.flags)
	switch err := b.conn.commit(&m); {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("table %s is %w", nft.TableName, ErrOwned)
	case errors.Is(err, unix.EOPNOTSUPP):
		st.flags = 0
	case err != nil:
		return fmt.Errorf("claim table %s: %w", nft.TableName, err)
	default:
		st.owned = true
	}
	return nil
}

// Stats count the batches of one family since Open.
type Stats struct {
	Batches    uint64
	Operations uint64
	// Rejected is the number of service ports that the kernel refuses now.
	Rejected int
	// Repairs is the number of comparisons with the kernel that repaired other programs' changes. A
	// comparison that also brings changes of our own is not included.
	Repairs uint64
}

// Stats returns the statistics of a family. It may be called at any time.
func (b *Backend) Stats(f model.Family) Stats { return b.of(f).read().stats }
