package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

const (
	// purgePasses bounds how often a map is read again because something in it had to
	// change. One reading may miss clients: the map changes while it is read, and a packet
	// that met the old rules may note its client a moment later.
	purgePasses = 5
	// leastLeft is the shortest tick of a kernel's clock. The kernel takes a shorter expiration
	// for none, and gives the client its full timeout.
	leastLeft         = 10 * time.Millisecond
	msgDestroySetElem = 30 // NFT_MSG_DESTROYSETELEM, Linux 6.3
	// purgeAgain is the time between the two purges of a map, see [Backend.purge].
	purgeAgain = 3 * time.Second
	// clientsPerBatch keeps a batch below the size of a socket's buffer (net.core.wmem_default).
	clientsPerBatch = 6 * elementsPerMessage
)

// pendingPurges are the maps of one family that are to be purged once more, by name.
type pendingPurges map[string]pendingPurge

// pendingPurge is a map to be purged after a batch that was not sent before start.
type pendingPurge struct {
	nft.Purge
	start time.Time
}

// add notes a map, perhaps once again.
func (u pendingPurges) add(s pendingPurge) {
	if was, ok := u[s.Map]; ok && s.Timeout == nil {
		s.Timeout, s.start = was.Timeout, was.start
	}
	u[s.Map] = s
}

// purge deletes or changes the clients that do not fit the new ruleset. A packet that met the
// old rules may still be on its way and note its client, so a second purge follows, see
// purgeLate.
func (b *Backend) purge(st *familyState, batch *nft.Batch, start time.Time) error {
	for _, name := range batch.DeleteSets {
		delete(st.late, name)
	}
	var errs []error
	for _, s := range batch.Purge {
		b.wakeLater()
		if st.late == nil {
			st.late = pendingPurges{}
		}
		one := pendingPurge{s, start}
		st.late.add(one)
		errs = append(errs, b.conn.purgeMap(st.family, one))
	}
	return errors.Join(errs...)
}

// purgeLate purges maps for the second time, behind all packets that met the old rules. The
// kernel needs some milliseconds to wait for these packets, and takes no batch meanwhile, so one
// wait serves the maps of some seconds.
func (b *Backend) purgeLate() error {
	if b.lateSince.IsZero() || time.Since(b.lateSince) < purgeAgain {
		return nil
	}
	b.lateSince = time.Time{}
	// The grace period is the whole machine's: it does not matter for which family.
	if err := b.conn.letPacketsPass(b.families[0].family); err != nil {
		b.wakeLater()
		return err
	}
	var errs []error
	for _, st := range b.families {
		var failed []error
		for _, s := range st.late {
			failed = append(failed, b.conn.purgeMap(st.family, s))
		}
		st.late = nil
		if err := errors.Join(failed...); err != nil {
			errs = append(errs, st.failed(err))
		}
	}
	return errors.Join(errs...)
}

// wakeLater makes Again receive when purgeLate has something to do.
func (b *Backend) wakeLater() {
	if b.lateSince.IsZero() {
		b.lateSince = time.Now()
		time.AfterFunc(purgeAgain, b.wake)
	}
}

// wake makes Again receive.
func (b *Backend) wake() {
	select {
	case b.again <- struct{}{}:
	default:
	}
}

// Again receives when Apply should be called once more, even with the same snapshot, to purge
// maps for the second time.
func (b *Backend) Again() <-chan struct{} { return b.again }

// letPacketsPass returns when no packet is on its way any more that met the rules of
// before: it could still note an endpoint that has just been taken away, and its client
// would be sent there for hours. A batch that the kernel forgets makes it wait for that
// (__nf_tables_abort: synchronize_rcu), which takes some milliseconds. Packets held
// by NFQUEUE are not waited for.
func (c *conn) letPacketsPass(f model.Family) error {
	if err := c.tryTable(f, 0); err != nil {
		return fmt.Errorf("wait for packets: %w", err)
	}
	return nil
}

// client is an element that a packet noted, or renewed.
type client struct {
	nft.Element
	timeout time.Duration
	left    time.Duration // of its timeout, when it was read
}

// clientChange forgets a client or, with now, gives it another time.
type clientChange struct {
	old client
	now *client
}

// purgeMap reads one map and writes the clients that must change.
func (c *conn) purgeMap(f model.Family, s pendingPurge) error {
	if err := c.changeMap(f, s); err != nil {
		return fmt.Errorf("purge map %s: %w", s.Map, err)
	}
	return nil
}

func (c *conn) changeMap(f model.Family, s pendingPurge) error {
	set := nft.DeclarationOf(s.Map)
	for range purgePasses {
		read := time.Now()
		c.interrupted = false
		changes, err := c.clientChanges(f, s)
		if err != nil || len(changes) == 0 && !c.interrupted {
			return err
		}
		// The clients that time out soonest come first, so that few do meanwhile.
		slices.SortFunc(changes, func(a, b clientChange) int { return cmp.Compare(a.old.left, b.old.left) })
		for len(changes) > 0 {
			passed := time.Since(read)
			some := changes[:min(len(changes), clientsPerBatch)]
			changes = changes[len(some):]
			for len(some) > 0 && some[0].old.left < passed {
				some = some[1:] // gone by now; if not, the next reading tells
			}
			if err := c.changeClients(f, &set, some); err != nil {
				return err
			}
		}
	}
	return nil
}

// clientChanges reads a map and returns the changes that it needs.
func (c *conn) clientChanges(f model.Family, s pendingPurge) (changes []clientChange, err error) {
	var all []client
	err = c.list(unix.NFT_MSG_GETSETELEM, f, s.Map, func(attrs []byte) error {
		for list := range attributes(attrs, unix.NFTA_SET_ELEM_LIST_ELEMENTS) {
			for element := range attributes(list, unix.NFTA_LIST_ELEM) {
				all = append(all, readClient(element))
			}
		}
		return nil
	})
	since := time.Since(s.start)
	for _, e := range all {
		if left, ok := timeLeft(e, s.Purge, since); !ok {
			changes = append(changes, clientChange{old: e})
		} else if s.Timeout != nil && s.Timeout.Timeout != e.timeout {
			changes = append(changes, clientChange{e, &client{e.Element, s.Timeout.Timeout, left}})
		}
	}
	return changes, err
}

func readClient(b []byte) client {
	value := func(attr uint16) string { return string(first(first(b, attr), unix.NFTA_DATA_VALUE)) }
	milliseconds := func(attr uint16) time.Duration { return time.Duration(readUint64(first(b, attr))) * time.Millisecond }
	return client{
		nft.Element{Key: value(unix.NFTA_SET_ELEM_KEY), Data: value(unix.NFTA_SET_ELEM_DATA)},
		milliseconds(unix.NFTA_SET_ELEM_TIMEOUT), milliseconds(unix.NFTA_SET_ELEM_EXPIRATION),
	}
}

// changeClients commits changes. In a large map there is always a client who times out
// between being read and being deleted. Since Linux 6.3 elements can be deleted that may
// not be there; before, that fails the batch, and the others go without it.
func (c *conn) changeClients(f model.Family, set *nft.Set, changes []clientChange) error {
	err := c.sendClients(msgDestroySetElem, f, set, changes)
	if errors.Is(err, unix.EINVAL) {
		return c.halveClients(f, set, changes)
	}
	return err
}

func (c *conn) halveClients(f model.Family, set *nft.Set, changes []clientChange) error {
	err := c.sendClients(unix.NFT_MSG_DELSETELEM, f, set, changes)
	switch half := len(changes) / 2; {
	case !errors.Is(err, unix.ENOENT):
		return err
	case half == 0:
		return nil
	default:
		return errors.Join(c.halveClients(f, set, changes[:half]), c.halveClients(f, set, changes[half:]))
	}
}

func (c *conn) sendClients(deletion uint16, f model.Family, set *nft.Set, changes []clientChange) error {
	if len(changes) == 0 {
		return nil
	}
	var forget, renew []client
	for _, change := range changes {
		forget = append(forget, client{Element: nft.Element{Key: change.old.Key}})
		if change.now != nil {
			renew = append(renew, *change.now)
		}
	}
	m := c.newBatch(f, nft.TableName)
	m.clients(deletion, set, forget)
	m.clients(unix.NFT_MSG_NEWSETELEM, set, renew)
	return c.commit(&m)
}

// clients appends messages that add clients with the time they have left, or delete them.
func (m *messages) clients(msgType uint16, set *nft.Set, list []client) {
	for some := range slices.Chunk(list, elementsPerMessage) {
		message, elements := m.beginElements(msgType, unix.NLM_F_CREATE, set.Name)
		for i := range some {
			at := m.element(unix.NFTA_LIST_ELEM, set, &some[i].Element)
			if msgType == unix.NFT_MSG_NEWSETELEM {
				m.uint64(unix.NFTA_SET_ELEM_TIMEOUT, uint64(some[i].timeout.Milliseconds()))
				m.uint64(unix.NFTA_SET_ELEM_EXPIRATION, uint64(some[i].left.Milliseconds()))
			}
			m.close(at)
		}
		m.close(elements)
		m.end(message)
	}
}

// timeLeft returns how much longer a client is remembered, or false if it is not. The
// rules may have another timeout than before for as long as since.
func timeLeft(e client, s nft.Purge, since time.Duration) (time.Duration, bool) {
	if !s.Keep[e.Data] {
		return 0, false
	}
	if s.Timeout == nil || s.Timeout.Timeout == e.timeout {
		return e.left, true
	}
	timeout := s.Timeout.Timeout
	if e.left > e.timeout || e.left <= timeout && e.left >= timeout-since-leastLeft {
		// It connected just now, and the rules gave it the new timeout already. The timeout
		// of an element stays as it was when it was made.
		return min(e.left, timeout), true
	}
	left := timeout - (e.timeout - e.left)
	return max(left, leastLeft), left > 0
}
