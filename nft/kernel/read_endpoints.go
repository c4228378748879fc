package kernel

import (
	"encoding/binary"
	"errors"

	"github.com/mdlayher/netlink"
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
	q, err := newQuestion(t.Family, s)
	if err != nil {
		return false
	}
	r := elementReader{set: s, into: &nft.Elements{}}
	r.into.Grow(count, nft.Width(t.Family, s.Key)+nft.Width(t.Family, s.Data))
	for frontend, most := range t.EndpointSlots(s.Name) {
		got := all
		for first := 0; first < most && got == all; first += keysPerQuestion {
			if got = c.ask(q, frontend, first, min(first+keysPerQuestion, most), r.add); got == failed {
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
	netlink.Message
	empty  int    // how long it is without any element
	buffer []byte // for an answer
}

func newQuestion(f model.Family, s nft.Set) (*question, error) {
	m, err := message(unix.NFT_MSG_GETSETELEM, 0, f, append(elementsOf(s.Name),
		netlink.Attribute{Type: unix.NFTA_SET_ELEM_LIST_ELEMENTS | unix.NLA_F_NESTED}))
	m.Header.Flags &^= netlink.Acknowledge // no other message says that there are no more
	return &question{Message: m, empty: len(m.Data), buffer: make([]byte, answerSize)}, err
}

// answer is what came back.
type answer int

const (
	all    answer = iota // what was asked for
	ended                // the elements up to one that is not there
	failed               // something else
)

// ask passes on a message for each of some slots of a frontend, up to one that is empty.
func (c *conn) ask(q *question, frontend string, first, end int, add func(message []byte) error) answer {
	q.Data = q.Data[:q.empty]
	var key []byte
	for slot := first; slot < end; slot++ {
		key = nft.AppendSlot(append(key[:0], frontend...), uint32(slot))
		q.Data = appendKey(q.Data, key)
	}
	list := q.Data[q.empty-unix.SizeofNlAttr:] // to its end
	binary.NativeEndian.PutUint16(list, uint16(len(list)))
	sent, err := c.raw.Send(q.Message)
	if err != nil {
		return failed
	}
	return c.answers(sent.Header.Sequence, q.buffer, add)
}

// appendKey appends an element of which only the key is known.
func appendKey(b, key []byte) []byte {
	value := attr(len(key))
	b = appendAttr(b, unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, attr(value))
	b = appendAttr(b, unix.NFTA_SET_ELEM_KEY|unix.NLA_F_NESTED, value)
	b = append(appendAttr(b, unix.NFTA_DATA_VALUE, len(key)), key...)
	return append(b, make([]byte, value-unix.SizeofNlAttr-len(key))...)
}

// appendAttr appends the header of an attribute with so many bytes in it.
func appendAttr(b []byte, kind uint16, n int) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofNlAttr+n))
	return binary.NativeEndian.AppendUint16(b, kind)
}

// answers passes on all messages that answer a request. The kernel has answered by the time
// the request is sent, so nothing is waited for: not how many there are says which is the
// last, but that there are no more.
func (c *conn) answers(sequence uint32, buffer []byte, add func(message []byte) error) answer {
	socket, err := c.raw.SyscallConn()
	if err != nil {
		return failed
	}
	got := all
	err = socket.Read(func(fd uintptr) bool {
		for {
			n, err := unix.Read(int(fd), buffer) // the socket does not wait
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
				got = max(got, readAnswer(buffer[:n], sequence, add))
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
