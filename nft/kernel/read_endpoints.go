package kernel

import (
	"encoding/binary"
	"errors"
	"iter"

	"github.com/mdlayher/netlink"
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
	answerSize      = 16 << 10
)

// readEndpoints reads a map of endpoints. If it is large, the kernel is asked for those that
// the table must have by what the other maps say. Are they as many as there are, they are
// all. Otherwise, and before Linux 6.16, which does not say how many there are, it is asked
// for a list.
func (c *conn) readEndpoints(t *nft.Table, s nft.Set, count, many int) error {
	if count > many && c.askEndpoints(t, s, count) {
		return nil
	}
	return c.listElements(t, s, count)
}

// askEndpoints reports whether the keys that the other maps tell are all the keys of a map
// of so many elements. Then it has read them. Whatever goes wrong is left to the list to tell.
func (c *conn) askEndpoints(t *nft.Table, s nft.Set, count int) bool {
	n, keys := t.EndpointKeys(s.Name)
	if n != count {
		return false
	}
	r := elementReader{set: s, into: &nft.Elements{}}
	r.into.Grow(count, nft.Width(t.Family, s.Key)+nft.Width(t.Family, s.Data))
	if !c.ask(t, s, keys, r.add) || r.into.Len() != count {
		return false
	}
	t.Elements[s.Name] = r.into
	return true
}

// ask passes on a message for each of the elements with some keys. It stops, and reports
// false, when one is not there.
func (c *conn) ask(t *nft.Table, s nft.Set, keys iter.Seq[[]byte], add func(message []byte) error) bool {
	request, err := message(unix.NFT_MSG_GETSETELEM, 0, t.Family, append(elementsOf(s.Name),
		netlink.Attribute{Type: unix.NFTA_SET_ELEM_LIST_ELEMENTS | unix.NLA_F_NESTED}))
	if err != nil {
		return false
	}
	request.Header.Flags &^= netlink.Acknowledge // no other message says that there are no more
	empty, buffer, n := len(request.Data), make([]byte, answerSize), 0
	send := func() bool {
		list := request.Data[empty-unix.SizeofNlAttr:] // to its end
		binary.NativeEndian.PutUint16(list, uint16(len(list)))
		sent, err := c.raw.Send(request)
		request.Data, n = request.Data[:empty], 0
		return err == nil && c.answers(sent.Header.Sequence, buffer, add)
	}
	for key := range keys {
		request.Data = appendKey(request.Data, key)
		if n++; n == keysPerQuestion && !send() {
			return false
		}
	}
	return n == 0 || send()
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

// answers passes on all messages that answer a request, and reports whether there was no
// error among them. The kernel has answered by the time the request is sent, so nothing is
// waited for: not how many there are says which is the last, but that there are no more.
func (c *conn) answers(sequence uint32, buffer []byte, add func(message []byte) error) bool {
	socket, err := c.raw.SyscallConn()
	if err != nil {
		return false
	}
	good := true
	err = socket.Read(func(fd uintptr) bool {
		for {
			n, err := unix.Read(int(fd), buffer) // the socket does not wait
			switch {
			case errors.Is(err, unix.EAGAIN):
				return true
			case errors.Is(err, unix.EINTR):
			case errors.Is(err, unix.ENOBUFS): // there were more than there was room for
				good = false
			case err != nil || n == 0:
				good = false
				return true
			default:
				good = good && readAnswer(buffer[:n], sequence, add)
			}
		}
	})
	return good && err == nil
}

// readAnswer passes on a message, unless it is about an error: then it reports false. Each
// element is answered with a message of its own (nft_get_set_elem).
func readAnswer(b []byte, sequence uint32, add func(message []byte) error) bool {
	if len(b) < emptyMessage {
		return false
	}
	kind, whose := binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint32(b[8:]) // struct nlmsghdr
	return kind != unix.NLMSG_ERROR && whose == sequence && add(b[emptyMessage:]) == nil
}
