package kernel

import (
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
	left    time.Duration // of its timeout, when it was read; 0: it is forgotten
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

// fit returns the client as it must be: forgotten or with another timeout, or as it is.
func (c client) fit(p pendingPurge, wanted compile.Clients) client {
	switch {
	case !wanted.Endpoints[c.Data]:
		c.left = 0
	case p.Timeout && wanted.Timeout != c.timeout:
		c.left, c.timeout = c.leftOf(wanted.Timeout, time.Since(p.start)), wanted.Timeout
	}
	return c
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

// changeClients commits changes. There is always a client who times out between being read and being deleted: before
// Linux 6.3, that fails the batch, and the others go without it.
func (c *conn) changeClients(f model.Family, set *nft.Set, list []client) error {
	err := c.sendClients(msgDestroySetElem, f, set, list)
	if errors.Is(err, unix.EINVAL) {
		return c.halveClients(f, set, list)
	}
	return err
}

func (c *conn) halveClients(f model.Family, set *nft.Set, list []client) error {
	err := c.sendClients(unix.NFT_MSG_DELSETELEM, f, set, list)
	switch half := len(list) / 2; {
	case !errors.Is(err, unix.ENOENT):
		return err
	case half == 0:
		return nil
	default:
		return errors.Join(c.halveClients(f, set, list[:half]), c.halveClients(f, set, list[half:]))
	}
}

func (c *conn) sendClients(deletion uint16, f model.Family, set *nft.Set, list []client) error {
	m := c.newBatch(f, nft.TableName)
	m.clients(deletion, set, list)
	stay := slices.DeleteFunc(slices.Clone(list), func(e client) bool { return e.left == 0 })
	m.clients(unix.NFT_MSG_NEWSETELEM, set, stay)
	return c.commit(&m)
}

// clients appends messages that add clients with the time they have left, or delete them.
func (m *messages) clients(msgType uint16, set *nft.Set, list []client) {
	for some := range slices.Chunk(list, elementsPerMessage) {
		message, elements := m.beginElements(msgType, unix.NLM_F_CREATE, set.Name)
		for i := range some {
			e := some[i].Element
			if msgType != unix.NFT_MSG_NEWSETELEM {
				e.Data = "" // whatever it has
			}
			at := m.element(unix.NFTA_LIST_ELEM, set, &e)
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

// leftOf returns how much longer a client is remembered with another timeout than before; 0: it is not. The rules may
// have the other timeout for as long as since.
func (c client) leftOf(timeout, since time.Duration) time.Duration {
	if c.left > c.timeout || c.left <= timeout && c.left >= timeout-since-leastLeft {
		// It connected just now, and the rules gave it the new timeout already. The timeout
		// of an element stays as it was when it was made.
		return min(c.left, timeout)
	}
	if left := timeout - (c.timeout - c.left); left > 0 {
		return max(left, leastLeft)
	}
	return 0
}
