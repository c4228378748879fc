package kernel

import (
	"encoding/binary"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// Tables, chains, rules and sets as messages. google/nftables writes neither a table's
// comment nor the "typeof" of a set, without which nft could not load the listing of our
// table again; and it takes no messages of other programs into its batches.

const (
	tableFlagOwner   = 0x2 // NFT_TABLE_F_OWNER, Linux 5.12
	tableFlagPersist = 0x4 // NFT_TABLE_F_PERSIST, Linux 6.9

	objectTable = 1 // NFTA_TABLE_NAME, NFTA_CHAIN_TABLE, NFTA_SET_ELEM_LIST_TABLE and so on

	tableUserdata   = 0x6  // NFTA_TABLE_USERDATA, Linux 5.10
	setFieldLength  = 0x1  // NFTA_SET_FIELD_LEN
	setExpr         = 0x11 // NFTA_SET_EXPR, Linux 5.7
	setCount        = 0x14 // NFTA_SET_COUNT, Linux 6.16
	verdictDataSize = 16   // sizeof(struct nft_verdict)
)

// object begins a message about the table or one of its objects.
func (m *messages) object(msgType, flags uint16) (at int) {
	at = m.begin(msgType, flags)
	m.string(objectTable, m.table)
	return at
}

func (m *messages) addTable(flags uint32) {
	at := m.object(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE)
	m.uint32(unix.NFTA_TABLE_FLAGS, flags)
	m.bytes(tableUserdata, userdata.AppendString(nil, tableCommentUD, nft.TableComment))
	m.end(at)
}

func (m *messages) deleteTable() { m.end(m.object(unix.NFT_MSG_DELTABLE, 0)) }

// remove deletes the object that has a name, or what is in it.
func (m *messages) remove(msgType, attr uint16, name string) {
	at := m.object(msgType, 0)
	m.string(attr, name)
	m.end(at)
}

// addChain makes a chain, without its rules.
func (m *messages) addChain(c nft.Chain) {
	at := m.object(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE)
	m.string(unix.NFTA_CHAIN_NAME, c.Name)
	if c.Hook != nft.NoHook {
		hook := m.nest(unix.NFTA_CHAIN_HOOK | unix.NLA_F_NESTED)
		m.uint32(unix.NFTA_HOOK_HOOKNUM, hookNumbers[c.Hook])
		m.uint32(unix.NFTA_HOOK_PRIORITY, uint32(c.Prio))
		m.close(hook)
		m.uint32(unix.NFTA_CHAIN_POLICY, policyAccept)
		m.string(unix.NFTA_CHAIN_TYPE, c.Type())
	}
	m.end(at)
}

const policyAccept = 1 // NF_ACCEPT

// hookNumbers are the kernel's numbers of hooks.
var hookNumbers = [...]uint32{
	nft.Prerouting: unix.NF_INET_PRE_ROUTING, nft.Output: unix.NF_INET_LOCAL_OUT,
	nft.Postrouting: unix.NF_INET_POST_ROUTING,
	nft.Input:       unix.NF_INET_LOCAL_IN, nft.Forward: unix.NF_INET_FORWARD,
}

func (m *messages) addRule(chain string, r nft.Rule) {
	at := m.object(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND)
	m.string(unix.NFTA_RULE_CHAIN, chain)
	list := m.nest(unix.NFTA_RULE_EXPRESSIONS | unix.NLA_F_NESTED)
	for _, s := range r {
		exprs, err := encodeStatement(m.family, s)
		if m.err == nil {
			m.err = err
		}
		for _, e := range exprs {
			m.expr(unix.NFTA_LIST_ELEM, e)
		}
	}
	m.close(list)
	hash := binary.BigEndian.AppendUint64(nil, r.Hash(m.family))
	m.bytes(unix.NFTA_RULE_USERDATA, userdata.Append(nil, ruleHashUD, hash))
	m.end(at)
}

func (m *messages) expr(attr uint16, e expr.Any) {
	b, err := expr.Marshal(nfproto(m.family), e)
	if m.err == nil {
		m.err = err
	}
	m.bytes(attr|unix.NLA_F_NESTED, b)
}

const (
	objectUserdata    = 0x8 // NFTA_OBJ_USERDATA, Linux 5.10
	objectCommentUD   = 0   // NFTNL_UDATA_OBJ_COMMENT
	timeoutUnanswered = 0x1 // CTA_TIMEOUT_TCP_SYN_SENT, CTA_TIMEOUT_UDP_UNREPLIED
)

// timeoutObject begins a message about a timeout policy. The library's expr.CtTimeout sends times of its own for the
// states that are not set, and changes its table of these for all callers (CtStateTCPTimeoutDefaults).
func (m *messages) timeoutObject(msgType, flags uint16, name string) (at int) {
	at = m.object(msgType, flags)
	m.string(unix.NFTA_OBJ_NAME, name)
	m.uint32(unix.NFTA_OBJ_TYPE, unix.NFT_OBJECT_CT_TIMEOUT)
	return at
}

func (m *messages) addTimeout(t nft.Timeout) {
	at := m.timeoutObject(unix.NFT_MSG_NEWOBJ, unix.NLM_F_CREATE, t.Name)
	data := m.nest(unix.NFTA_OBJ_DATA | unix.NLA_F_NESTED)
	m.bytes(expr.NFTA_CT_TIMEOUT_L3PROTO, []byte{0, nfproto(m.family)})
	m.bytes(expr.NFTA_CT_TIMEOUT_L4PROTO, []byte{byte(t.Protocol)})
	policy := m.nest(expr.NFTA_CT_TIMEOUT_DATA | unix.NLA_F_NESTED)
	m.uint32(timeoutUnanswered, t.Unanswered)
	m.close(policy)
	m.close(data)
	m.bytes(objectUserdata, userdata.AppendString(nil, objectCommentUD, t.Comment))
	m.end(at)
}

// addSet makes a set, without its elements. Sets of one batch differ in their id: the number of the message.
func (m *messages) addSet(s nft.Set) {
	isConcat := s.Interval && len(s.Key) > 1
	at := m.object(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE)
	m.string(unix.NFTA_SET_NAME, s.Name)
	m.uint32(unix.NFTA_SET_FLAGS, setFlags(s, isConcat))
	m.uint32(unix.NFTA_SET_KEY_TYPE, datatype(m.family, s.Key))
	m.uint32(unix.NFTA_SET_KEY_LEN, uint32(nft.Width(m.family, s.Key)))
	m.uint32(unix.NFTA_SET_ID, m.count)
	if isConcat {
		m.concatDescription(s)
	}
	switch {
	case s.Verdicts:
		m.uint32(unix.NFTA_SET_DATA_TYPE, unix.NFT_DATA_VERDICT)
		m.uint32(unix.NFTA_SET_DATA_LEN, verdictDataSize)
	case s.Data != nil:
		m.uint32(unix.NFTA_SET_DATA_TYPE, datatype(m.family, s.Data))
		m.uint32(unix.NFTA_SET_DATA_LEN, uint32(nft.Width(m.family, s.Data)))
	}
	if s.Timeout > 0 {
		m.uint64(unix.NFTA_SET_TIMEOUT, uint64(s.Timeout.Milliseconds()))
	}
	if s.Counter {
		m.expr(setExpr, &expr.Counter{})
	}
	m.bytes(unix.NFTA_SET_USERDATA, setUserdata(m.family, s))
	m.end(at)
}

func setFlags(s nft.Set, isConcat bool) (flags uint32) {
	if s.Interval {
		flags |= unix.NFT_SET_INTERVAL
	}
	if s.Verdicts || s.Data != nil {
		flags |= unix.NFT_SET_MAP
	}
	if s.Dynamic {
		// Without a size the kernel reserves no room, and takes up to 65,535 elements (nft_dynset_init).
		flags |= unix.NFT_SET_EVAL | unix.NFT_SET_TIMEOUT
	}
	if isConcat {
		flags |= nftables.NFT_SET_CONCAT // Linux 5.6
	}
	return flags
}

// concatDescription has the length of each component of the key, which the kernel needs to know for ranges.
func (m *messages) concatDescription(s nft.Set) {
	lengths := [...]int{nft.Addr: nft.Addr.Width(m.family), nft.Proto: 1, nft.Service: 2, nft.Slot: nft.RegisterSize}
	desc := m.nest(unix.NFTA_SET_DESC | unix.NLA_F_NESTED)
	concat := m.nest(nftables.NFTA_SET_DESC_CONCAT | unix.NLA_F_NESTED)
	for _, t := range s.Key {
		field := m.nest(unix.NFTA_LIST_ELEM | unix.NLA_F_NESTED)
		m.uint32(setFieldLength, uint32(lengths[t]))
		m.close(field)
	}
	m.close(concat)
	m.close(desc)
}

// datatypes returns nft's numbers of the types that a table of a family has. Slots are integers, which have no length
// of their own: nft learns it from the "typeof" in the userdata. nft 0.9.8 can't read that of a concatenation, so the
// type is another one that is 32 bits long, in the machine's byte order.
func datatypes(f model.Family) map[nft.Type]uint32 {
	addr := [...]nftables.SetDatatype{model.IPv4: nftables.TypeIPAddr, model.IPv6: nftables.TypeIP6Addr}[f]
	return map[nft.Type]uint32{
		nft.Addr: addr.GetNFTMagic(), nft.Proto: nftables.TypeInetProto.GetNFTMagic(),
		nft.Service: nftables.TypeInetService.GetNFTMagic(), nft.Slot: nftables.TypeMark.GetNFTMagic(),
	}
}

// datatype numbers a concatenation as nft does.
func datatype(f model.Family, types []nft.Type) (n uint32) {
	numbers := datatypes(f)
	for _, t := range types {
		n = n<<nftables.SetConcatTypeBits | numbers[t]
	}
	return n
}

// Data that only nft reads, in its own format (libnftnl: include/libnftnl/udata.h).
const (
	tableCommentUD     = 0   // NFTNL_UDATA_TABLE_COMMENT
	ruleHashUD         = 'v' // ours: nft skips types that it does not know (parse_rule_udata_cb)
	typeofExprUD       = 0   // NFTNL_UDATA_SET_TYPEOF_EXPR
	typeofDataUD       = 1   // NFTNL_UDATA_SET_TYPEOF_DATA
	byteOrderBigEndian = 2   // nftables: enum byteorder
)

// appendNumber appends a number in this machine's byte order, as libnftnl does; the library's
// AppendUint32 is little-endian everywhere.
func appendNumber(b []byte, kind userdata.Type, n uint32) []byte {
	return userdata.Append(b, kind, binary.NativeEndian.AppendUint32(nil, n))
}

func setUserdata(f model.Family, s nft.Set) []byte {
	order := uint32(0)
	if len(s.Key) == 1 {
		order = byteOrderBigEndian // no key is a slot alone
	}
	b := appendNumber(nil, userdata.NFTNL_UDATA_SET_KEYBYTEORDER, order)
	if s.Data != nil || s.Verdicts {
		b = appendNumber(b, userdata.NFTNL_UDATA_SET_DATABYTEORDER, 0)
	}
	if slices.Contains(s.Key, nft.Slot) {
		b = userdata.Append(b, userdata.NFTNL_UDATA_SET_KEY_TYPEOF, typeof(f, s.Key, protoTH))
	}
	if s.HasSlots() {
		b = userdata.Append(b, userdata.NFTNL_UDATA_SET_DATA_TYPEOF, typeof(f, s.Data, protoTCP))
	}
	if s.Comment != "" {
		b = userdata.AppendString(b, userdata.NFTNL_UDATA_SET_COMMENT, s.Comment)
	}
	return b
}

// Numbers of nft's expressions and protocol descriptions (nftables: enum expr_types,
// enum proto_desc_id, and the templates of ip, ip6, th and tcp).
const (
	exprPayload, exprMeta, exprConcat, exprNumgen = 7, 9, 13, 23
	protoTCP, protoTH, protoIP, protoIP6          = 8, 11, 12, 13
	fieldDport, fieldIPDaddr, fieldIP6Daddr       = 2, 12, 9
	metaL4Proto                                   = 16
	numgenRandom                                  = 1
)

// typeof describes a concatenation: as keys "ip daddr . meta l4proto . th dport . numgen random mod 1", as data
// "ip daddr . tcp dport". portOf is the protocol of ports.
func typeof(f model.Family, types []nft.Type, portOf uint32) []byte {
	var parts []byte
	for i, t := range types {
		parts = userdata.Append(parts, userdata.Type(i), typeofPart(f, t, portOf))
	}
	return typeofExpr(exprConcat, parts)
}

func typeofPart(f model.Family, t nft.Type, portOf uint32) []byte {
	pair := func(a, b uint32) []byte { return appendNumber(appendNumber(nil, 0, a), 1, b) }
	switch t {
	case nft.Addr:
		return typeofExpr(exprPayload, [...][]byte{
			model.IPv4: pair(protoIP, fieldIPDaddr), model.IPv6: pair(protoIP6, fieldIP6Daddr),
		}[f])
	case nft.Proto:
		return typeofExpr(exprMeta, appendNumber(nil, 0, metaL4Proto))
	case nft.Service:
		return typeofExpr(exprPayload, pair(portOf, fieldDport))
	case nft.Slot:
	}
	return typeofExpr(exprNumgen, appendNumber(pair(numgenRandom, 1), 2, 0))
}

func typeofExpr(kind uint32, data []byte) []byte {
	return userdata.Append(appendNumber(nil, typeofExprUD, kind), typeofDataUD, data)
}
