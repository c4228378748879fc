package kernel

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/compile"
	"github.com/vmapd/vmapd/nft/internal/nfnl"
)

const (
	// leastLeft is the shortest tick of a kernel's clock. The kernel takes a shorter expiration
	// for none, and gives the client its full timeout.
	leastLeft         = 10 * time.Millisecond
	msgDestroySetElem = 30 // NFT_MSG_DESTROYSETELEM, Linux 6.3
	// clientsPerBatch are changed in about a millisecond, for which other batches wait.
	clientsPerBatch = 2 * elementsPerMessage
)

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

// readClients reads clients in pieces, as the kernel lists them.
func (c *conn) readClients(f model.Family, name string, each func([]client) error) error {
	return c.list(unix.NFT_MSG_GETSETELEM, f, name, func(attrs []byte) error {
		var some []client
		for list := range nfnl.Attributes(attrs, unix.NFTA_SET_ELEM_LIST_ELEMENTS) {
			for element := range nfnl.Attributes(list, unix.NFTA_LIST_ELEM) {
				some = append(some, readClient(element))
			}
		}
		return each(some)
	})
}

// changes returns the changes that clients need. Those that time out soonest come first, so that
// few do meanwhile.
func (p *pendingPurge) changes(list []client, wanted compile.Clients) (changes []clientChange) {
	since := time.Since(p.start)
	for _, e := range list {
		if !wanted.Endpoints[e.Data] {
			changes = append(changes, clientChange{old: e})
		} else if p.Timeout && wanted.Timeout != e.timeout {
			c := clientChange{old: e}
			if left := timeLeft(e, wanted.Timeout, since); left > 0 {
				c.now = &client{e.Element, wanted.Timeout, left}
			}
			changes = append(changes, c)
		}
	}
	slices.SortFunc(changes, func(a, b clientChange) int { return cmp.Compare(a.old.left, b.old.left) })
	return changes
}

func readClient(b []byte) client {
	value := func(attr uint16) string { return string(nfnl.First(nfnl.First(b, attr), unix.NFTA_DATA_VALUE)) }
	milliseconds := func(attr uint16) time.Duration {
		return time.Duration(nfnl.Uint64(nfnl.First(b, attr))) * time.Millisecond
	}
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

// timeLeft returns how much longer a client is remembered with another timeout than before; 0: it is not. The
// rules may have the other timeout for as long as since.
func timeLeft(e client, timeout, since time.Duration) time.Duration {
	if e.left > e.timeout || e.left <= timeout && e.left >= timeout-since-leastLeft {
		// It connected just now, and the rules gave it the new timeout already. The timeout
		// of an element stays as it was when it was made.
		return min(e.left, timeout)
	}
	if left := timeout - (e.timeout - e.left); left > 0 {
		return max(left, leastLeft)
	}
	return 0
}
