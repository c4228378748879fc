package kernel

import (
	"errors"
	"log/slog"
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
	leastLeft = 10 * time.Millisecond
	// clientsPerBatch is how many clients are changed at once.
	clientsPerBatch = 1000
	// purgeTime is after how long no further map is purged: other changes wait meanwhile.
	purgeTime = 200 * time.Millisecond
)

// purge deletes the clients of endpoints that batches have taken away, and gives those that stay a timeout that has
// changed. A map is read once, 60,000 clients in 0.3 s. Who is noted meanwhile, or is left out, is deleted by its own
// next packet, see nft.GoneEndpoints: so a failure is no failure of Apply. The next one tries again.
func (b *Backend) purge(st *familyState) {
	purges, start := st.purges, time.Now()
	st.purges = nil
	for i, p := range purges {
		if time.Since(start) > purgeTime {
			return
		}
		err := b.conn.purge(st.read().ruleset, p)
		if err != nil && !errors.Is(err, unix.ENOENT) { // the map may be gone
			b.wants.Log.Warn("clients of removed endpoints are not deleted; the next sync tries again",
				slog.String("family", st.family.String()), slog.String("map", p.Map()), slog.Any("err", err))
			st.purges = purges[i:]
			return
		}
	}
}

// purge purges one map. All clients are read before one is changed: the kernel goes on with a list behind as many
// elements as it has listed, and would leave out as many as are gone by then (nft_rhash_walk).
func (c *conn) purge(r *compile.Ruleset, p compile.Purge) error {
	endpoints, timeout := r.Clients(p)
	var changed []client
	err := c.elements(r.Family, p.Map(), func(element []byte) error {
		has := readClient(element)
		if now := has.fit(endpoints, timeout); now != has {
			changed = append(changed, now)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for some := range slices.Chunk(changed, clientsPerBatch) {
		if err := c.changeClients(r.Family, p.Map(), some); err != nil {
			return err
		}
	}
	return nil
}

// client is an element that a packet noted, or renewed.
type client struct {
	nft.Element
	timeout time.Duration
	left    time.Duration // of its timeout, when it was read; 0: it is forgotten
}

// fit returns the client as it must be: forgotten, with another timeout that began when it last connected, or as it is.
func (c client) fit(endpoints map[string]bool, timeout time.Duration) client {
	switch {
	case !endpoints[c.Data]:
		c.left = 0
	case timeout != c.timeout:
		c.left = c.leftOf(timeout)
		c.timeout = timeout
	}
	return c
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

// changeClients deletes clients, and adds those again that have time left. Who times out between being read and being
// deleted fails the batch, and is left out of the next one.
func (c *conn) changeClients(f model.Family, name string, list []client) error {
	set := nft.DeclarationOf(name)
	for {
		m := c.newBatch(f, nft.TableName)
		first := m.count + 1
		for _, one := range list {
			m.client(unix.NFT_MSG_DELSETELEM, &set, one)
		}
		for _, one := range list {
			if one.left > 0 {
				m.client(unix.NFT_MSG_NEWSETELEM, &set, one)
			}
		}
		err := c.commit(&m)
		if !errors.Is(err, unix.ENOENT) {
			return err
		}
		there := list[:0:0]
		for i, one := range list {
			if !slices.Contains(c.refused, first+uint32(i)) {
				there = append(there, one)
			}
		}
		if len(there) == len(list) {
			return err
		}
		list = there
	}
}

// client appends a message that adds a client with the time it has left, or deletes it.
func (m *messages) client(msgType uint16, set *nft.Set, c client) {
	message, elements := m.beginElements(msgType, unix.NLM_F_CREATE, set.Name)
	at := m.element(unix.NFTA_LIST_ELEM, set, &c.Element)
	m.uint64(unix.NFTA_SET_ELEM_TIMEOUT, uint64(c.timeout.Milliseconds()))
	m.uint64(unix.NFTA_SET_ELEM_EXPIRATION, uint64(c.left.Milliseconds()))
	m.close(at)
	m.close(elements)
	m.end(message)
}
