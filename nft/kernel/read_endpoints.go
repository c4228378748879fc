package kernel

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
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
	answerSize      = 16 << 10
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
	q := question{family: t.Family, set: s.Name, pid: c.raw.PID(), buffer: make([]byte, answerSize), add: r.add}
	for frontend, most := range t.EndpointSlots(s.Name) {
		got := all
		for first := 0; first < most && got == all; first += keysPerQuestion {
			if got = c.ask(&q, frontend, first, min(first+keysPerQuestion, most)); got == failed {
				return false
			}
		}
	}
	if r.into.Len() != count {
		return false
	}
	t.Elements[s.Name] = r.into
	return true
}

// question asks for elements of one map.
type question struct {
	family model.Family
	set    string
	pid    uint32
	msgs   messages
	buffer []byte // for an answer
	add    func(message []byte) error
}

// answer is what came back.
type answer int

const (
	all    answer = iota // what was asked for
	ended                // the elements up to one that is not there
	failed               // something else
)

// ask passes on a message for each of some slots of a frontend, up to one that is empty.
func (c *conn) ask(q *question, frontend string, first, end int) answer {
	m := &q.msgs
	*m = messages{b: m.b[:0], pid: q.pid, count: m.count}
	request := m.begin(header(unix.NFT_MSG_GETSETELEM, 0))
	m.b = appendGenmsg(m.b, q.family)
	m.string(unix.NFTA_SET_ELEM_LIST_TABLE, nft.TableName)
	m.string(unix.NFTA_SET_ELEM_LIST_SET, q.set)
	list := m.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS | unix.NLA_F_NESTED)
	key := []byte(frontend)
	for slot := first; slot < end; slot++ {
		key = nft.AppendSlot(key[:len(frontend)], uint32(slot))
		element := m.nest(unix.NFTA_LIST_ELEM | unix.NLA_F_NESTED)
		m.value(unix.NFTA_SET_ELEM_KEY, string(key))
		m.close(element)
	}
	m.close(list)
	m.end(request)
	if c.write(m) != nil {
		return failed
	}
	return c.answers(m.count, q)
}

// answers passes on all messages that answer a request. The kernel has answered by the time
// the request is sent, so nothing is waited for: not how many there are says which is the
// last, but that there are no more.
func (c *conn) answers(sequence uint32, q *question) answer {
	got := all
	err := c.socket.Read(func(fd uintptr) bool {
		for {
			n, err := unix.Read(int(fd), q.buffer) // the socket does not wait
			switch {
			case errors.Is(err, unix.EAGAIN):
				return true
			case errors.Is(err, unix.EINTR):
			case errors.Is(err, unix.ENOBUFS): // there were more than there was room for
				got = failed
			case err != nil || n == 0:
				got = failed
				return true
			default:
				got = max(got, readAnswer(q.buffer[:n], sequence, q.add))
			}
		}
	})
	if err != nil {
		return failed
	}
	return got
}

// readAnswer passes on a message, unless it is about an error. Each element is answered with
// a message of its own (nft_get_set_elem).
func readAnswer(b []byte, sequence uint32, add func(message []byte) error) answer {
	const code = 4 // the first of struct nlmsgerr
	switch {
	case len(b) < unix.SizeofNlMsghdr+code || binary.NativeEndian.Uint32(b[8:]) != sequence: // struct nlmsghdr
		return failed
	case binary.NativeEndian.Uint16(b[4:]) != unix.NLMSG_ERROR:
		if add(b[unix.SizeofNlMsghdr+genmsg:]) == nil {
			return all
		}
	case int32(binary.NativeEndian.Uint32(b[unix.SizeofNlMsghdr:])) == -int32(unix.ENOENT):
		return ended
	}
	return failed
}
