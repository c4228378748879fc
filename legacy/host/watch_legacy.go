package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/legacy/xtables"
	"github.com/vmapd/vmapd/model"
)

// LegacyWatch notices when others change our rules in the tables of iptables-legacy. The kernel tells
// nobody of changes of these: they are looked at, twice a second. A look asks for the
// number and size of all rules of a table, which takes the kernel a few microseconds. Only if these
// are others than before, the rules are read, and ours are counted. What leaves their number as it
// is goes unnoticed until the next comparison.
type LegacyWatch struct {
	*watchable
	log      *slog.Logger
	families []*legacyLook
	changed  chan<- struct{}
	changes  atomic.Uint64
	failed   bool // the last look, which the log has
}

// legacyLook looks at the tables of one family.
type legacyLook struct {
	legacySocket
	names *os.File             // the tables that exist
	seen  map[string]seenTable // by name
	told  *leftRules           // that others have changed, until all is as it should be; or nil
}

// seenTable is what a table was like when our rules were counted.
type seenTable struct {
	info  xtables.Info
	rules int // ours
}

const (
	lookInterval = 500 * time.Millisecond
	// lookShare bounds the time that looks take, where others change the tables all the time: the
	// pause after a look is so many times as long as the look.
	lookShare = 20
)

// WatchLegacy returns a watch of the rules in the tables of iptables-legacy, nil if there are none.
// It tells of a change, without waiting for anybody to hear it. The result watches the network
// namespace of the caller.
func (w *watchable) WatchLegacy(log *slog.Logger, changed chan<- struct{}) (*LegacyWatch, error) {
	l := &LegacyWatch{watchable: w, log: log, changed: changed}
	for _, p := range w.programs {
		if p.variant() != variantLegacy {
			continue
		}
		look, err := openLook(legacyFamilies[p.family])
		if err != nil {
			return nil, errors.Join(fmt.Errorf("watch the %v rules of iptables-legacy: %w", p.family, err), l.close())
		}
		l.families = append(l.families, look)
	}
	if len(l.families) == 0 {
		return nil, nil //nolint:nilnil // nothing to watch is no error
	}
	return l, nil
}

func openLook(f legacyFamily) (*legacyLook, error) {
	names, err := os.Open(f.names)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(f.domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open a socket: %w", err), names.Close())
	}
	return &legacyLook{legacySocket: legacySocket{f, fd}, names: names, seen: map[string]seenTable{}}, nil
}

func (w *LegacyWatch) close() error {
	var errs []error
	for _, l := range w.families {
		errs = append(errs, l.names.Close(), unix.Close(l.fd))
	}
	return errors.Join(errs...)
}

// Changes returns the number of changes of others that were noticed. It may be called at any time.
func (w *LegacyWatch) Changes() uint64 { return w.changes.Load() }

// Run looks until ctx ends. It may run next to Apply.
func (w *LegacyWatch) Run(ctx context.Context) {
	defer func() { _ = w.close() }()
	next := time.NewTimer(lookInterval)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		start := time.Now()
		_ = w.look() // which logs errors
		next.Reset(max(lookInterval, lookShare*time.Since(start)))
	}
}

// look looks at all tables, and logs an error unless the last look had one, too. What an Apply that
// runs is about to leave is not known yet, and one that is to begin waits for the look.
func (w *LegacyWatch) look() (err error) {
	if !w.applying.TryLock() {
		return nil
	}
	defer w.applying.Unlock()
	defer func() {
		if err != nil && !w.failed {
			w.log.LogAttrs(context.Background(), slog.LevelError, "cannot watch our rules; comparing them at each resync", slog.Any("err", err))
		}
		w.failed = err != nil
	}()
	var errs []error
	for _, l := range w.families {
		left := w.left[l.family]
		if left == nil || left == l.told {
			continue // the next Apply compares everything
		}
		table, err := l.changed(left, w.ours)
		if err != nil {
			errs = append(errs, err)
		}
		if table != "" {
			l.told = left
			w.notice(l.family, table)
		}
	}
	return errors.Join(errs...)
}

func (w *LegacyWatch) notice(f model.Family, table string) {
	w.changes.Add(1)
	select {
	case w.changed <- struct{}{}:
	default:
		return // nobody has looked after the last one yet
	}
	w.log.LogAttrs(context.Background(), slog.LevelInfo, "rules changed by another program",
		slog.String("family", f.String()), slog.String("table", table))
}

// changed returns a table in which our rules are not those that were left, "" if there is none.
func (l *legacyLook) changed(left *leftRules, ours func(chain string) bool) (string, error) {
	exist, err := l.tables()
	if err != nil {
		return "", err
	}
	for table, want := range left.count {
		switch {
		case want == 0:
			continue
		case !slices.Contains(exist, table): // to ask the kernel for it would make it
			return table, nil
		}
		found, err := l.find(table, want, ours)
		if err != nil {
			return "", fmt.Errorf("%v table %s of iptables-legacy: %w", l.family, table, err)
		}
		// What was told of, and is no difference for an Apply that compared, is none.
		if found.rules != want && (l.told == nil || !left.clean) {
			return table, nil
		}
		l.seen[table] = seenTable{found.info, want}
	}
	l.told = nil
	return "", nil
}

// tables returns the names of the tables that exist.
func (l *legacyLook) tables() ([]string, error) {
	const longest = 1 << 10
	var b [longest]byte
	n, err := l.names.ReadAt(b[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("list the %v tables of iptables-legacy: %w", l.family, err)
	}
	return strings.Fields(string(b[:n])), nil
}

// find counts our rules in a table, unless it looks as it did when there were as many as there
// should be.
func (l *legacyLook) find(table string, want int, ours func(chain string) bool) (found seenTable, err error) {
	if found.info, err = l.info(table); err != nil {
		return found, err
	}
	if last := l.seen[table]; last.info == found.info && last.rules == want {
		return last, nil
	}
	t, err := l.read(table)
	if err != nil {
		return found, err
	}
	found.info = t.Info
	found.rules, err = t.Owned(ours)
	return found, err
}
