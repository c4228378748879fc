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
	// leastLeft is the longest tick of a kernel's clock. The kernel takes a shorter expiration
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

// fit returns the client as it must be: forgotten, with another timeout that began when it last connected, or as it is.
func (c client) fit(wanted compile.Clients) client {
	switch {
	case !wanted.Endpoints[c.Data]:
		c.left = 0
	case wanted.Timeout != c.timeout:
		c.left = c.leftOf(wanted.Timeout)
		c.timeout = wanted.Timeout
	}
	return c
}

func readClient(b []byte) client {
	milliseconds := func(attr uint16) time.Duration {
		return time.Duration(nfnl.Uint64(nfnl.First(b, attr))) * time.Millisecond
	}
	return client{
		nft.Element{
			Key: string(nfnl.Value(b, unix.NFTA_SET_ELEM_KEY)), Data: string(nfnl.Value(b, unix.NFTA_SET_ELEM_DATA)),
		},
		milliseconds(unix.NFTA_SET_ELEM_TIMEOUT), milliseconds(unix.NFTA_SET_ELEM_EXPIRATION),
	}
}

// changeClients commits changes. There is always a client who times out between being read and being deleted: before
// Linux 6.3, that fails the batch, and each goes by itself.
func (c *conn) changeClients(f model.Family, set *nft.Set, list []client) error {
	err := c.sendClients(msgDestroySetElem, f, set, list)
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	for one := range slices.Chunk(list, 1) {
		if err := c.sendClients(unix.NFT_MSG_DELSETELEM, f, set, one); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
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

// leftOf returns how much longer a client is remembered with another timeout, since it last connected. The rules may
// have given it the other timeout already, while the element's own stays as it was when it was made: then the result is
// out of range, and what is left stays.
func (c client) leftOf(timeout time.Duration) time.Duration {
	left := timeout - (c.timeout - c.left)
	if left < leastLeft || left > timeout {
		return max(leastLeft, min(c.left, timeout))
	}
	return left
}
