package kernel

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/nft"
)

const (
	// manyElements is how many elements a map of endpoints may have to be read as a list. For
	// each piece of a list, of some 600 elements, the kernel walks the map from its
	// beginning (nft_rhash_walk), so that it takes the square of their number: 0.2 s for
	// 100,000 and 2 s for 250,000, where answers to as many questions take 0.3 s and 0.8 s.
	manyElements = 120_000
	// keysPerQuestion keeps the answers, a message each, below the default size of a socket's
	// buffer (net.core.rmem_default), should the larger one be refused.
	keysPerQuestion = 200
)

// readEndpoints reads a map of endpoints. If it is large, the kernel is asked for those in
// the slots that the table can have by what the other maps say. Are they as many as there
// are, they are all. Otherwise, and before Linux 6.16, which does not say how many there
// are, it is asked for a list.
func (c *conn) readEndpoints(t *nft.Table, s nft.Set, count, many int) error {
	if count > many && c.askEndpoints(t, s, count) {
		return nil
	}
	return c.listElements(t, s, count)
}

// askEndpoints reports whether a map of so many elements has none but those in the slots
// that the other maps tell. Then it has read them. Whatever goes wrong is left to the list
// to tell.
func (c *conn) askEndpoints(t *nft.Table, s nft.Set, count int) bool {
	r := elementReader{set: s, into: &nft.Elements{}}
	r.into.Grow(count, nft.Width(t.Family, s.Key)+nft.Width(t.Family, s.Data))
	var m messages
	for frontend, most := range t.EndpointSlots(s.Name) {
		var err error
		for first := 0; first < most && err == nil; first += keysPerQuestion {
			m = messages{family: t.Family, table: nft.TableName, port: c.socket.Port(), b: m.b[:0]}
			m.question(&s, frontend, first, min(first+keysPerQuestion, most))
			err = c.exchange(&m, r.add)
		}
		// The kernel answers up to the first slot that is empty.
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return false
		}
	}
	if r.into.Len() != count {
		return false
	}
	t.Elements[s.Name] = r.into
	return true
}

// question appends a message that asks for some slots of a frontend.
func (m *messages) question(set *nft.Set, frontend string, first, end int) {
	message, list := m.beginElements(unix.NFT_MSG_GETSETELEM, 0, set.Name)
	key := []byte(frontend)
	for slot := first; slot < end; slot++ {
		key = nft.AppendSlot(key[:len(frontend)], uint32(slot))
		m.close(m.element(unix.NFTA_LIST_ELEM, set, &nft.Element{Key: string(key)}))
	}
	m.close(list)
	m.end(message)
}
