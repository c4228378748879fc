package kernel

import (
	"errors"
	"slices"

	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/internal/nfnl"
)

// google/nftables makes a value of each element and of each part of it. For a quarter of a
// million of them that is ten times the memory that they take here.

// listElements reads all elements of a set. While the kernel makes a larger table of a set, it leaves some out or names
// them twice (nft_rhash_walk): such an element is written again, or left until the next comparison.
func (c *conn) listElements(t *nft.Table, s nft.Set) error {
	r := newElementReader(t, s)
	err := c.list(unix.NFT_MSG_GETSETELEM, t.Family, s.Name, r.add)
	r.end()
	return err
}

const (
	// manyElements is how many elements a map of endpoints may have to be listed. For each piece of a list, the kernel
	// walks the map from its beginning: a million take 40 s, and as many questions 3 s.
	manyElements = 120_000
	// slotsPerQuestion keeps the answers, a message each, below the default size of a socket's buffer
	// (net.core.rmem_default), should the larger one be refused.
	slotsPerQuestion = 200
)

// askSlots reads the slots of a map of endpoints that has count: those of each frontend, from the first to the first
// that is empty. It reports whether these are all. Otherwise the caller lists the map.
func (c *conn) askSlots(t *nft.Table, s nft.Set, count int) bool {
	r := newElementReader(t, s)
	m, dispatch := messages{}, nft.ServiceIPs
	if s.Key[0] == nft.Proto {
		dispatch = nft.ServiceNodePorts
	}
	for frontend := range t.Keys(dispatch) {
		for first, asked := 0, 0; asked == first; first += slotsPerQuestion {
			m = messages{family: t.Family, table: nft.TableName, port: c.socket.Port(), b: m.b[:0]}
			m.slots(&s, frontend, first)
			before := t.Len(s.Name)
			if err := c.exchange(&m, r.add); err != nil && !errors.Is(err, unix.ENOENT) {
				return false
			}
			asked += t.Len(s.Name) - before
		}
	}
	return t.Len(s.Name) == count
}

// slots appends a question for slots of a frontend. The kernel answers up to the first that is empty.
func (m *messages) slots(set *nft.Set, frontend string, first int) {
	message, list := m.beginElements(unix.NFT_MSG_GETSETELEM, 0, set.Name)
	for slot := range slotsPerQuestion {
		key := string(nft.AppendSlot([]byte(frontend), uint32(first+slot)))
		m.close(m.element(unix.NFTA_LIST_ELEM, set, &nft.Element{Key: key}))
	}
	m.close(list)
	m.end(message)
}

// elementReader collects the elements of one set from messages.
type elementReader struct {
	set  nft.Set
	into *nft.Table
	// The kernel has two elements for each range, where it begins and where it ends, in no order that it promises.
	starts, ends []string
}

// newElementReader returns one that collects a set's elements anew.
func newElementReader(t *nft.Table, s nft.Set) *elementReader {
	t.Elements[s.Name] = nft.Elements{}
	if delete(t.Slots, s.Name); s.HasSlots() {
		t.Slots[s.Name] = nft.NewSlots(t.Family, s)
	}
	return &elementReader{set: s, into: t}
}

func (r *elementReader) add(message []byte) error {
	for element := range nfnl.Elements(message) {
		r.element(element)
	}
	return nil
}

func (r *elementReader) element(b []byte) {
	text := func(attr uint16) string { return string(nfnl.Value(b, attr)) }
	e := nft.Element{Key: text(unix.NFTA_SET_ELEM_KEY), End: text(setElemKeyEnd)}
	switch isRange := r.set.Interval && len(r.set.Key) == 1; {
	case isRange && nfnl.Uint32(nfnl.First(b, unix.NFTA_SET_ELEM_FLAGS))&unix.NFT_SET_ELEM_INTERVAL_END != 0:
		r.ends = append(r.ends, e.Key)
		return
	case isRange:
		r.starts = append(r.starts, e.Key)
		return
	case r.set.Verdicts:
		e.Verdict = readVerdict(nfnl.First(nfnl.First(b, unix.NFTA_SET_ELEM_DATA), unix.NFTA_DATA_VERDICT))
	default:
		e.Data = text(unix.NFTA_SET_ELEM_DATA)
	}
	user := nfnl.First(b, unix.NFTA_SET_ELEM_USERDATA)
	e.Comment = string(readComment(user, userdata.NFTNL_UDATA_SET_ELEM_COMMENT))
	r.into.Add(r.set.Name, e)
}

// end joins the beginnings and ends of ranges. Without an end, a range goes on to the last address there is.
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
		r.into.Add(r.set.Name, e)
	}
}

// readComment finds a comment in the data that nft keeps with an object.
func readComment(user []byte, kind userdata.Type) []byte {
	comment, _ := nfnl.Userdata(user, byte(kind))
	return nfnl.Text(comment)
}

// readVerdict reads the contents of NFTA_DATA_VERDICT. A verdict that we would not write becomes NoVerdict.
func readVerdict(b []byte) nft.Verdict {
	code := expr.VerdictKind(int32(nfnl.Uint32(nfnl.First(b, unix.NFTA_VERDICT_CODE))))
	kind := nft.VerdictKind(max(0, slices.Index(verdictKinds[:], code)))
	return nft.Verdict{Kind: kind, Chain: string(nfnl.Text(nfnl.First(b, unix.NFTA_VERDICT_CHAIN)))}
}
