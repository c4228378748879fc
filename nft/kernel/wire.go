package kernel

import (
	"encoding/binary"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// All that is written goes in messages of our own: google/nftables writes neither a table's
// comment nor the "typeof" of a set, without which nft could not load the listing of our
// table again; and it takes no messages of others into its batches.

const (
	tableFlagOwner   = 0x2 // NFT_TABLE_F_OWNER, Linux 5.12
	tableFlagPersist = 0x4 // NFT_TABLE_F_PERSIST, Linux 6.9

	setExpr             = 0x11 // NFTA_SET_EXPR, Linux 5.7
	tableUserdata       = 0x6  // NFTA_TABLE_USERDATA, Linux 5.10
	tableCommentUD      = 0    // libnftnl: NFTNL_UDATA_TABLE_COMMENT
	setKeyByteOrderUD   = 0    // NFTNL_UDATA_SET_KEYBYTEORDER
	setDataByteOrderUD  = 1    // NFTNL_UDATA_SET_DATABYTEORDER
	setKeyTypeofUD      = 3    // NFTNL_UDATA_SET_KEY_TYPEOF
	setDataTypeofUD     = 4    // NFTNL_UDATA_SET_DATA_TYPEOF
	setCommentUD        = 7    // NFTNL_UDATA_SET_COMMENT
	byteOrderBigEndian  = 2    // nftables: enum byteorder
	typeofExprUD        = 0    // NFTNL_UDATA_SET_TYPEOF_EXPR
	typeofDataUD        = 1    // NFTNL_UDATA_SET_TYPEOF_DATA
	datatypeBits        = 6    // nftables: TYPE_BITS
	datatypeInteger     = 4    // TYPE_INTEGER
	datatypeIPAddr      = 7    // TYPE_IPADDR
	datatypeIP6Addr     = 8    // TYPE_IP6ADDR
	datatypeInetProto   = 12   // TYPE_INET_PROTOCOL
	datatypeInetService = 13   // TYPE_INET_SERVICE
	verdictDataLength   = 16   // sizeof(struct nft_verdict)
)

func message(msgType int, flags netlink.HeaderFlags, f model.Family, attrs []netlink.Attribute) (netlink.Message, error) {
	data, err := netlink.MarshalAttributes(attrs)
	if err != nil {
		return netlink.Message{}, err
	}
	return netlink.Message{Header: header(msgType, flags), Data: append(appendGenmsg(nil, f), data...)}, nil
}

// batchMessage begins or ends a batch.
func batchMessage(msgType int) netlink.Message {
	return netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(msgType), Flags: netlink.Request},
		Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES},
	}
}

func stringAttr(attr uint16, s string) netlink.Attribute {
	return netlink.Attribute{Type: attr, Data: append([]byte(s), 0)}
}

func uint32Attr(attr uint16, v uint32) netlink.Attribute {
	return netlink.Attribute{Type: attr, Data: binary.BigEndian.AppendUint32(nil, v)}
}

func tableMessage(f model.Family, name string, flags uint32) (netlink.Message, error) {
	return message(unix.NFT_MSG_NEWTABLE, netlink.Create, f, []netlink.Attribute{
		stringAttr(unix.NFTA_TABLE_NAME, name),
		uint32Attr(unix.NFTA_TABLE_FLAGS, flags),
		{Type: tableUserdata, Data: userdata.AppendString(nil, tableCommentUD, nft.TableComment)},
	})
}

func deleteTableMessage(f model.Family, name string) (netlink.Message, error) {
	return message(unix.NFT_MSG_DELTABLE, 0, f, []netlink.Attribute{stringAttr(unix.NFTA_TABLE_NAME, name)})
}

func setMessage(f model.Family, table string, s nft.Set, id uint32) (netlink.Message, error) {
	flags := uint32(0)
	if s.Interval {
		flags |= unix.NFT_SET_INTERVAL
	}
	if s.Verdicts || s.Data != nil {
		flags |= unix.NFT_SET_MAP
	}
	if s.Dynamic {
		// Without a size the kernel reserves no room, and takes up to 65,535 elements
		// (nft_dynset_init).
		flags |= unix.NFT_SET_EVAL | unix.NFT_SET_TIMEOUT
	}
	isConcat := s.Interval && len(s.Key) > 1
	if isConcat {
		flags |= nftables.NFT_SET_CONCAT
	}
	attrs := []netlink.Attribute{
		stringAttr(unix.NFTA_SET_TABLE, table),
		stringAttr(unix.NFTA_SET_NAME, s.Name),
		uint32Attr(unix.NFTA_SET_FLAGS, flags),
		uint32Attr(unix.NFTA_SET_KEY_TYPE, datatype(f, s.Key)),
		uint32Attr(unix.NFTA_SET_KEY_LEN, uint32(nft.Width(f, s.Key))),
		uint32Attr(unix.NFTA_SET_ID, id),
	}
	if isConcat {
		desc, err := concatDescription(f, s)
		if err != nil {
			return netlink.Message{}, err
		}
		attrs = append(attrs, netlink.Attribute{Type: unix.NFTA_SET_DESC | unix.NLA_F_NESTED, Data: desc})
	}
	switch {
	case s.Verdicts:
		attrs = append(attrs, uint32Attr(unix.NFTA_SET_DATA_TYPE, unix.NFT_DATA_VERDICT),
			uint32Attr(unix.NFTA_SET_DATA_LEN, verdictDataLength))
	case s.Data != nil:
		attrs = append(attrs, uint32Attr(unix.NFTA_SET_DATA_TYPE, datatype(f, s.Data)),
			uint32Attr(unix.NFTA_SET_DATA_LEN, uint32(nft.Width(f, s.Data))))
	}
	if s.Counter {
		data, err := expr.Marshal(byte(tableFamily(f)), &expr.Counter{})
		if err != nil {
			return netlink.Message{}, err
		}
		attrs = append(attrs, netlink.Attribute{Type: setExpr | unix.NLA_F_NESTED, Data: data})
	}
	attrs = append(attrs, netlink.Attribute{Type: unix.NFTA_SET_USERDATA, Data: setUserdata(f, s)})
	return message(unix.NFT_MSG_NEWSET, netlink.Create, f, attrs)
}

func deleteSetMessage(f model.Family, table, name string) (netlink.Message, error) {
	return message(unix.NFT_MSG_DELSET, 0, f, []netlink.Attribute{
		stringAttr(unix.NFTA_SET_TABLE, table),
		stringAttr(unix.NFTA_SET_NAME, name),
	})
}

// concatDescription tells the length of each component of the key, which the kernel needs
// to know for ranges.
func concatDescription(f model.Family, s nft.Set) ([]byte, error) {
	const fieldLen = 1 // NFTA_SET_FIELD_LEN
	lengths := map[nft.Type]int{nft.Addr: nft.Addr.Width(f), nft.Proto: 1, nft.Service: 2}
	fields := make([]netlink.Attribute, 0, len(s.Key))
	for _, t := range s.Key {
		one, err := netlink.MarshalAttributes([]netlink.Attribute{uint32Attr(fieldLen, uint32(lengths[t]))})
		if err != nil {
			return nil, err
		}
		fields = append(fields, netlink.Attribute{Type: unix.NFTA_LIST_ELEM | unix.NLA_F_NESTED, Data: one})
	}
	list, err := netlink.MarshalAttributes(fields)
	if err != nil {
		return nil, err
	}
	return netlink.MarshalAttributes([]netlink.Attribute{{Type: nftables.NFTA_SET_DESC_CONCAT | unix.NLA_F_NESTED, Data: list}})
}

// datatype numbers a type as nft does: 6 bits for each component.
func datatype(f model.Family, types []nft.Type) uint32 {
	var n uint32
	for _, t := range types {
		n <<= datatypeBits
		switch t {
		case nft.Addr:
			if f == model.IPv6 {
				n |= datatypeIP6Addr
			} else {
				n |= datatypeIPAddr
			}
		case nft.Proto:
			n |= datatypeInetProto
		case nft.Service:
			n |= datatypeInetService
		case nft.Slot:
			n |= datatypeInteger
		}
	}
	return n
}

// setUserdata tells nft what the kernel does not need to know, in nft's own format.
func setUserdata(f model.Family, s nft.Set) []byte {
	order := uint32(0)
	if len(s.Key) == 1 {
		order = byteOrderBigEndian
	}
	b := userdata.AppendUint32(nil, setKeyByteOrderUD, order)
	if s.Data != nil || s.Verdicts {
		b = userdata.AppendUint32(b, setDataByteOrderUD, 0)
	}
	if hasSlot(s) {
		b = appendUserdata(b, setKeyTypeofUD, typeof(f, s.Key, false))
		b = appendUserdata(b, setDataTypeofUD, typeof(f, s.Data, true))
	}
	if s.Comment != "" {
		b = userdata.AppendString(b, setCommentUD, s.Comment)
	}
	return b
}

func hasSlot(s nft.Set) bool {
	return slices.Contains(s.Key, nft.Slot)
}

func appendUserdata(b []byte, t byte, value []byte) []byte {
	return append(append(b, t, byte(len(value))), value...)
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

// typeof describes a concatenation: as keys "ip daddr . meta l4proto . th dport .
// numgen random mod 1", as data "ip daddr . tcp dport".
func typeof(f model.Family, types []nft.Type, data bool) []byte {
	var parts []byte
	for i, t := range types {
		parts = appendUserdata(parts, byte(i), typeofPart(f, t, data))
	}
	return typeofExpr(exprConcat, parts)
}

func typeofPart(f model.Family, t nft.Type, data bool) []byte {
	pair := func(a, b uint32) []byte { return userdata.AppendUint32(userdata.AppendUint32(nil, 0, a), 1, b) }
	switch t {
	case nft.Addr:
		if f == model.IPv6 {
			return typeofExpr(exprPayload, pair(protoIP6, fieldIP6Daddr))
		}
		return typeofExpr(exprPayload, pair(protoIP, fieldIPDaddr))
	case nft.Proto:
		return typeofExpr(exprMeta, userdata.AppendUint32(nil, 0, metaL4Proto))
	case nft.Service:
		if data {
			return typeofExpr(exprPayload, pair(protoTCP, fieldDport))
		}
		return typeofExpr(exprPayload, pair(protoTH, fieldDport))
	case nft.Slot:
	}
	return typeofExpr(exprNumgen, userdata.AppendUint32(pair(numgenRandom, 1), 2, 0))
}

func typeofExpr(kind uint32, data []byte) []byte {
	return appendUserdata(userdata.AppendUint32(nil, typeofExprUD, kind), typeofDataUD, data)
}
