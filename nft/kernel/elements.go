package kernel

import (
	"encoding/binary"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/nft"
)

// Elements are nearly all that there is to write, a quarter of a million at a time. So they are encoded here, as
// google/nftables would encode them, which allocates memory for each attribute.

func (m *messages) elements(msgType uint16, set *nft.Set, ops []nft.Element) {
	message, list := m.beginElements(msgType, unix.NLM_F_CREATE, set.Name)
	isRange := set.Interval && len(set.Key) == 1
	number := uint16(0)
	for i := range ops {
		number++
		m.close(m.element(number, set, &ops[i]))
		if isRange && ops[i].End != "" {
			number++
			m.rangeEnd(number, ops[i].End)
		}
	}
	m.close(list)
	m.end(message)
}

// beginElements begins a message about elements of one set, and their list.
func (m *messages) beginElements(msgType, flags uint16, set string) (message, list int) {
	message = m.begin(msgType, flags)
	m.string(unix.NFTA_SET_ELEM_LIST_SET, set)
	m.uint32(unix.NFTA_SET_ELEM_LIST_SET_ID, 0)
	m.string(unix.NFTA_SET_ELEM_LIST_TABLE, m.table)
	return message, m.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS | unix.NLA_F_NESTED)
}

// element begins one element; close ends it. A range is two elements, its first key and the first key behind it, unless
// the key is a concatenation. An element without data only names a key.
func (m *messages) element(number uint16, set *nft.Set, e *nft.Element) (at int) {
	at = m.nest(number | unix.NLA_F_NESTED)
	m.value(unix.NFTA_SET_ELEM_KEY, e.Key)
	isRange := set.Interval && len(set.Key) == 1
	if set.Interval && !isRange && e.End != "" {
		m.value(nftables.NFTA_SET_ELEM_KEY_END, e.End) // Linux 5.6
	}
	switch {
	case set.Verdicts:
		m.verdict(e.Verdict)
	case e.Data != "":
		m.value(unix.NFTA_SET_ELEM_DATA, e.Data)
	}
	if open := isRange && e.End == ""; open || e.Comment != "" {
		m.userdata(e.Comment, open)
	}
	if set.Counter {
		m.counter()
	}
	return at
}

// rangeEnd appends the element that ends a range. Its flags are marked as nested, as by
// google/nftables; the kernel ignores the mark.
func (m *messages) rangeEnd(number uint16, key string) {
	at := m.nest(number | unix.NLA_F_NESTED)
	m.uint32(unix.NFTA_SET_ELEM_FLAGS|unix.NLA_F_NESTED, unix.NFT_SET_ELEM_INTERVAL_END)
	m.value(unix.NFTA_SET_ELEM_KEY, key)
	m.close(at)
}

func (m *messages) verdict(v nft.Verdict) {
	data := m.nest(unix.NFTA_SET_ELEM_DATA | unix.NLA_F_NESTED)
	verdict := m.nest(unix.NFTA_DATA_VERDICT | unix.NLA_F_NESTED)
	m.uint32(unix.NFTA_VERDICT_CODE, uint32(verdictKinds[v.Kind]))
	if v.Chain != "" {
		m.string(unix.NFTA_VERDICT_CHAIN, v.Chain)
	}
	m.close(verdict)
	m.close(data)
}

// userdata appends the data that only nft reads.
func (m *messages) userdata(comment string, open bool) {
	at := m.nest(unix.NFTA_SET_ELEM_USERDATA)
	if comment != "" {
		m.b = append(m.b, byte(userdata.NFTNL_UDATA_SET_ELEM_COMMENT), byte(len(comment)+1))
		m.b = append(append(m.b, comment...), 0)
	}
	if open {
		const size = 4
		m.b = append(m.b, byte(userdata.NFTNL_UDATA_SET_ELEM_FLAGS), size)
		m.b = binary.NativeEndian.AppendUint32(m.b, userdata.NFTNL_UDATA_SET_ELEM_F_INTERVAL_OPEN)
	}
	m.close(at)
}

func (m *messages) counter() {
	e := m.nest(unix.NFTA_SET_ELEM_EXPR | unix.NLA_F_NESTED)
	m.string(unix.NFTA_EXPR_NAME, "counter")
	data := m.nest(unix.NFTA_EXPR_DATA | unix.NLA_F_NESTED)
	for _, what := range [...]uint16{unix.NFTA_COUNTER_BYTES, unix.NFTA_COUNTER_PACKETS} {
		m.uint64(what, 0)
	}
	m.close(data)
	m.close(e)
}

// verdictKinds are the kernel's numbers of verdicts.
var verdictKinds = [...]expr.VerdictKind{
	nft.NoVerdict: expr.VerdictContinue, nft.DropPacket: expr.VerdictDrop, nft.Return: expr.VerdictReturn,
	nft.Jump: expr.VerdictJump, nft.Goto: expr.VerdictGoto,
}
