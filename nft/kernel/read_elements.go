package kernel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/internal/nfnl"
)

// google/nftables makes a value of each element and of each part of it. For a quarter of a
// million of them that is ten times the memory that they take here.

// listPasses bounds how often a set is read again because elements were missing.
const listPasses = 5

// listElements reads all elements of a set. There should be count; 0: the kernel does not tell.
// The kernel lists a hash table in pieces, and while it makes a larger table of it, some time
// after many elements were added, it leaves some out or names them twice (nft_rhash_walk).
func (c *conn) listElements(t *nft.Table, s nft.Set, count int) error {
	for range listPasses {
		r := elementReader{set: s, into: make(nft.Elements, count)}
		if err := c.list(unix.NFT_MSG_GETSETELEM, t.Family, s.Name, r.add); err != nil {
			return fmt.Errorf("read elements of %s: %w", s.Name, err)
		}
		r.end()
		t.Elements[s.Name] = r.into
		if count == 0 || s.Interval || len(r.into) == count { // of intervals, both ends count
			break
		}
	}
	return nil
}

// elementReader collects the elements of one set from messages.
type elementReader struct {
	set  nft.Set
	into nft.Elements
	// The kernel has two elements for each range, where it begins and where it ends, in no
	// order that it promises.
	starts, ends []string
	chains       map[string]string // names in verdicts, of which many elements have the same
}

// add takes the attributes of one message.
func (r *elementReader) add(message []byte) error {
	for list := range nfnl.Attributes(message, unix.NFTA_SET_ELEM_LIST_ELEMENTS) {
		for element := range nfnl.Attributes(list, unix.NFTA_LIST_ELEM) {
			if err := r.element(element); err != nil {
				return err
			}
		}
	}
	return nil
}

// element takes one element.
func (r *elementReader) element(b []byte) error {
	var key, end, data, user []byte
	flags := uint32(0)
	for len(b) > 0 {
		kind, value, rest, ok := nfnl.CutAttribute(b)
		if !ok {
			return fmt.Errorf("element of %d bytes is cut off", len(b))
		}
		switch b = rest; kind {
		case unix.NFTA_SET_ELEM_KEY:
			key = nfnl.First(value, unix.NFTA_DATA_VALUE)
		case setElemKeyEnd:
			end = nfnl.First(value, unix.NFTA_DATA_VALUE)
		case unix.NFTA_SET_ELEM_DATA:
			data = value
		case unix.NFTA_SET_ELEM_USERDATA:
			user = value
		case unix.NFTA_SET_ELEM_FLAGS:
			flags = nfnl.Uint32(value)
		}
	}
	if r.set.Interval && len(r.set.Key) == 1 {
		if flags&unix.NFT_SET_ELEM_INTERVAL_END != 0 {
			r.ends = append(r.ends, string(key))
		} else {
			r.starts = append(r.starts, string(key))
		}
		return nil
	}
	var e nft.Element
	if r.set.Verdicts {
		e.Verdict, data = r.verdict(nfnl.First(data, unix.NFTA_DATA_VERDICT)), nil
	} else {
		data = nfnl.First(data, unix.NFTA_DATA_VALUE)
	}
	comment := readComment(user, userdata.NFTNL_UDATA_SET_ELEM_COMMENT)
	var all strings.Builder // one piece of memory for all parts
	all.Grow(len(key) + len(end) + len(data) + len(comment))
	for _, part := range [...][]byte{key, end, data, comment} {
		all.Write(part)
	}
	rest := all.String()
	cut := func(n int) (part string) {
		part, rest = rest[:n], rest[n:]
		return part
	}
	e.Key, e.End, e.Data, e.Comment = cut(len(key)), cut(len(end)), cut(len(data)), cut(len(comment))
	r.into.Add(e)
	return nil
}

// end joins the beginnings and ends of ranges. Without an end, a range goes on to the last
// address there is.
func (r *elementReader) end() {
	slices.Sort(r.ends)
	for _, start := range r.starts {
		e := nft.Element{Key: start}
		i, found := slices.BinarySearch(r.ends, start)
		if found {
			i++
		}
		if i < len(r.ends) {
			e.End = r.ends[i]
		}
		r.into.Add(e)
	}
}

// readComment finds a comment in the data that nft keeps with an object: types, lengths and
// values.
func readComment(user []byte, kind userdata.Type) []byte {
	const header = 2
	for len(user) >= header {
		n := header + int(user[1])
		if n > len(user) {
			return nil
		}
		if userdata.Type(user[0]) == kind {
			return nfnl.Text(user[header:n])
		}
		user = user[n:]
	}
	return nil
}

// verdict reads the contents of NFTA_DATA_VERDICT. A verdict that we would not write becomes
// NoVerdict.
func (r *elementReader) verdict(b []byte) nft.Verdict {
	code := expr.VerdictKind(int32(nfnl.Uint32(nfnl.First(b, unix.NFTA_VERDICT_CODE))))
	name := nfnl.Text(nfnl.First(b, unix.NFTA_VERDICT_CHAIN))
	chain, ok := r.chains[string(name)]
	if !ok {
		if r.chains == nil {
			r.chains = map[string]string{}
		}
		chain = string(name)
		r.chains[chain] = chain
	}
	return nft.Verdict{Kind: nft.VerdictKind(max(0, slices.Index(verdictKinds[:], code))), Chain: chain}
}
