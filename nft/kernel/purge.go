package kernel

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

const (
	// purgePasses bounds how often a map is read again because something in it had to
	// change. One reading may miss clients: the map changes while it is read, and a packet
	// that met the old rules may note its client a moment later.
	purgePasses = 5
	// leastLeft is as short as a tick of the kernel's clock can be. It takes what is
	// shorter for no time at all, and gives the client its full time.
	leastLeft         = 10 * time.Millisecond
	msgDestroySetElem = 30 // NFT_MSG_DESTROYSETELEM, Linux 6.3
	// purgeAgain is after how long maps are purged once more, see [Backend.purge].
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

// purge brings the clients that packets noted in line with what was just programmed. A
// packet that met the rules of before may still be on its way, so it is done once more a
// little later, see purgeLate.
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

// purgeLate purges once more what was purged for the first time a while ago, behind all
// packets that met the rules of before. To wait for these takes the kernel some milliseconds,
// in which it takes no batch, so this is done for all maps of some seconds together.
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

// wakeLater lets purgeLate be called when it has something to do.
func (b *Backend) wakeLater() {
	if b.lateSince.IsZero() {
		b.lateSince = time.Now()
		time.AfterFunc(purgeAgain, b.wake)
	}
}

// wake says that there is something to do for Apply.
func (b *Backend) wake() {
	select {
	case b.again <- struct{}{}:
	default:
	}
}

// Again receives when Apply should be called once more, if with the same snapshot: for
// what it could not do at once.
func (b *Backend) Again() <-chan struct{} { return b.again }

// letPacketsPass returns when no packet is on its way any more that met the rules of
// before: it could still note an endpoint that has just been taken away, and its client
// would be sent there for hours. A batch that the kernel forgets makes it wait for that
// (__nf_tables_abort: synchronize_rcu), which takes some milliseconds. Only what somebody
// holds back on the way (NFQUEUE) is not waited for.
func (c *conn) letPacketsPass(f model.Family) error {
	m, err := tableMessage(f, probeTable, 0)
	if err != nil {
		return err
	}
	if err := c.exchange([]netlink.Message{m}, false); err != nil {
		return fmt.Errorf("wait for packets: %w", err)
	}
	return nil
}

// purgeMap purges one map. It costs what it costs to read the map, and writes only what
// must change.
func (c *conn) purgeMap(f model.Family, s pendingPurge) error {
	if err := c.changeMap(f, s); err != nil {
		return fmt.Errorf("purge map %s: %w", s.Map, err)
	}
	return nil
}

func (c *conn) changeMap(f model.Family, s pendingPurge) error {
	set := &nftables.Set{
		Table: &nftables.Table{Name: nft.TableName, Family: tableFamily(f)}, Name: s.Map, KeyType: keyType(f), IsMap: true,
	}
	for range purgePasses {
		read := time.Now()
		elements, err := c.lib.GetSetElements(set)
		if err != nil {
			return err
		}
		since := time.Since(s.start)
		var changes []clientChange
		for _, e := range elements {
			if left, ok := timeLeft(e, s.Purge, since); !ok {
				changes = append(changes, clientChange{old: e})
			} else if s.Timeout != nil && s.Timeout.Timeout != e.Timeout {
				now := e
				now.Timeout, now.Expires = s.Timeout.Timeout, left
				changes = append(changes, clientChange{e, &now})
			}
		}
		if len(changes) == 0 {
			return nil
		}
		// Who times out soonest comes first, so that few do meanwhile.
		slices.SortFunc(changes, func(a, b clientChange) int { return cmp.Compare(a.old.Expires, b.old.Expires) })
		for len(changes) > 0 {
			passed := time.Since(read)
			some := changes[:min(len(changes), clientsPerBatch)]
			changes = changes[len(some):]
			for len(some) > 0 && some[0].old.Expires < passed {
				some = some[1:] // gone by now; if not, the next reading tells
			}
			if err := c.changeClients(f, s.Map, some); err != nil {
				return err
			}
		}
	}
	return nil
}

// clientChange forgets a client or, with now, gives it another time.
type clientChange struct {
	old nftables.SetElement
	now *nftables.SetElement
}

// changeClients commits changes. In a large map there is always a client who times out
// between being read and being deleted. Since Linux 6.3 elements can be deleted that may
// not be there; before, that fails the batch, and the others go without it.
func (c *conn) changeClients(f model.Family, name string, changes []clientChange) error {
	err := c.sendClients(msgDestroySetElem, f, name, changes)
	if errors.Is(err, unix.EINVAL) {
		return c.halveClients(f, name, changes)
	}
	return err
}

func (c *conn) halveClients(f model.Family, name string, changes []clientChange) error {
	err := c.sendClients(unix.NFT_MSG_DELSETELEM, f, name, changes)
	switch half := len(changes) / 2; {
	case !errors.Is(err, unix.ENOENT):
		return err
	case half == 0:
		return nil
	default:
		return errors.Join(c.halveClients(f, name, changes[:half]), c.halveClients(f, name, changes[half:]))
	}
}

func (c *conn) sendClients(deletion int, f model.Family, name string, changes []clientChange) error {
	if len(changes) == 0 {
		return nil
	}
	var forget, renew []nftables.SetElement
	for _, change := range changes {
		forget = append(forget, change.old)
		if change.now != nil {
			renew = append(renew, *change.now)
		}
	}
	var msgs []netlink.Message
	for _, part := range []struct {
		msgType int
		list    []nftables.SetElement
	}{{deletion, forget}, {unix.NFT_MSG_NEWSETELEM, renew}} {
		for chunk := range slices.Chunk(part.list, elementsPerMessage) {
			m, err := elementsMessage(part.msgType, f, name, chunk)
			if err != nil {
				return err
			}
			msgs = append(msgs, m)
		}
	}
	return c.exchange(msgs, true)
}

func keyType(f model.Family) nftables.SetDatatype {
	if f == model.IPv6 {
		return nftables.TypeIP6Addr
	}
	return nftables.TypeIPAddr
}

// timeLeft returns how much longer a client is remembered, or false if it is not. The
// rules may have another timeout than before for as long as since.
func timeLeft(e nftables.SetElement, s nft.Purge, since time.Duration) (time.Duration, bool) {
	if !s.Keep[string(e.Val)] {
		return 0, false
	}
	if s.Timeout == nil || s.Timeout.Timeout == e.Timeout {
		return e.Expires, true
	}
	timeout := s.Timeout.Timeout
	if e.Expires > e.Timeout || e.Expires <= timeout && e.Expires >= timeout-since-leastLeft {
		// It connected just now, and the rules gave it the new timeout already. What the
		// element says of its timeout stays as it was when it was made.
		return min(e.Expires, timeout), true
	}
	left := timeout - (e.Timeout - e.Expires)
	return max(left, leastLeft), left > 0
}

// elementsMessage adds or deletes elements of a dynamic map: google/nftables can't say
// when an element expires.
func elementsMessage(msgType int, f model.Family, set string, list []nftables.SetElement) (netlink.Message, error) {
	items := make([]netlink.Attribute, 0, len(list))
	for _, e := range list {
		key, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: unix.NFTA_DATA_VALUE, Data: e.Key}})
		if err != nil {
			return netlink.Message{}, err
		}
		attrs := []netlink.Attribute{{Type: unix.NFTA_SET_ELEM_KEY | unix.NLA_F_NESTED, Data: key}}
		if msgType == unix.NFT_MSG_NEWSETELEM {
			val, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: unix.NFTA_DATA_VALUE, Data: e.Val}})
			if err != nil {
				return netlink.Message{}, err
			}
			attrs = append(attrs,
				netlink.Attribute{Type: unix.NFTA_SET_ELEM_DATA | unix.NLA_F_NESTED, Data: val},
				millisecondsAttr(unix.NFTA_SET_ELEM_TIMEOUT, e.Timeout),
				millisecondsAttr(unix.NFTA_SET_ELEM_EXPIRATION, e.Expires))
		}
		item, err := netlink.MarshalAttributes(attrs)
		if err != nil {
			return netlink.Message{}, err
		}
		items = append(items, netlink.Attribute{Type: unix.NFTA_LIST_ELEM | unix.NLA_F_NESTED, Data: item})
	}
	nested, err := netlink.MarshalAttributes(items)
	if err != nil {
		return netlink.Message{}, err
	}
	return message(msgType, netlink.Create, f, []netlink.Attribute{
		stringAttr(unix.NFTA_SET_ELEM_LIST_TABLE, nft.TableName),
		stringAttr(unix.NFTA_SET_ELEM_LIST_SET, set),
		{Type: unix.NFTA_SET_ELEM_LIST_ELEMENTS | unix.NLA_F_NESTED, Data: nested},
	})
}

func millisecondsAttr(attr uint16, d time.Duration) netlink.Attribute {
	return netlink.Attribute{Type: attr, Data: binary.BigEndian.AppendUint64(nil, uint64(d.Milliseconds()))}
}
