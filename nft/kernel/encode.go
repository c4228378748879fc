package kernel

import (
	"encoding/binary"
	"fmt"
	"net"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// The exact same bytes that nft 1.0.6 makes of the rules' text: nft must be able to print what we write.

// register returns the number of the register at an offset. Registers of 16 bytes and of 4 bytes overlap (NFT_REG_1,
// NFT_REG32_00); nft and the kernel name the wide one wherever it begins there.
func register(offset int) uint32 {
	const perWide, firstNarrow = 16, 8
	if offset%perWide == 0 {
		return unix.NFT_REG_1 + uint32(offset/perWide)
	}
	return firstNarrow + uint32(offset/4)
}

func encodeStatement(f model.Family, s nft.Statement) ([]expr.Any, error) {
	switch s := s.(type) {
	case nft.MatchProtocol: // meta l4proto tcp
		return []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: unix.NFT_REG_1},
			compare(expr.CmpOpEq, byte(s.Protocol)),
		}, nil
	case nft.MatchSource: // ip saddr != 10.244.0.0/16
		return encodeMatchSource(f, s), nil
	case nft.MatchInterface: // iifname != "cali*"
		return encodeMatchInterface(s), nil
	case nft.Match:
		return matches[s], nil
	case nft.AddFlow: // flow add @fast-path
		return []expr.Any{&expr.FlowOffload{Name: s.Flowtable}}, nil
	case nft.InSet: // ip daddr @cluster-ips
		return append(encodeKey(f, s.Key), &expr.Lookup{SourceRegister: unix.NFT_REG_1, SetName: s.Set, Invert: s.Not}), nil
	case nft.VerdictMap: // ip daddr . meta l4proto . th dport vmap @service-ips
		return append(encodeKey(f, s.Key), &expr.Lookup{
			SourceRegister: unix.NFT_REG_1, SetName: s.Map, DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true,
		}), nil
	case nft.DNAT: // dnat ip to ip daddr . … map @endpoints
		port := register(nft.Addr.Width(f))
		return append(
			encodeKey(f, s.Key),
			&expr.Lookup{SourceRegister: unix.NFT_REG_1, SetName: s.Map, DestRegister: unix.NFT_REG_1, IsDestRegSet: true},
			&expr.NAT{
				Type: expr.NATTypeDestNAT, Family: uint32(nfproto(f)),
				// The rest is implied, but the kernel gives it back: so rules that are read
				// compare equal to those that are written.
				RegAddrMin: unix.NFT_REG_1, RegAddrMax: unix.NFT_REG_1,
				RegProtoMin: port, RegProtoMax: port, Specified: true,
			},
		), nil
	case nft.Remember: // update @affinity-… { ip saddr timeout 3h : ip daddr . th dport }
		return encodeClient(f, &expr.Dynset{SetName: s.Map, Operation: unix.NFT_DYNSET_OP_UPDATE, Timeout: s.Timeout}), nil
	case nft.Forget: // delete @affinity-… { ip saddr : ip daddr . th dport }
		return encodeClient(f, &expr.Dynset{SetName: s.Map, Operation: dynsetDelete}), nil
	case nft.SetTimeout: // ct timeout set "retry-tcp"
		return []expr.Any{&expr.Objref{Type: unix.NFT_OBJECT_CT_TIMEOUT, Name: s.Timeout}}, nil
	case nft.MatchRepeated: // update @tried { … limit rate over 1/hour burst 2 packets }
		return append(encodeKey(f, s.Key), &expr.Dynset{
			SrcRegKey: unix.NFT_REG_1, SetName: s.Set, Operation: unix.NFT_DYNSET_OP_UPDATE,
			Exprs: []expr.Any{&expr.Limit{
				Type: expr.LimitTypePkts, Rate: 1, Unit: expr.LimitTimeHour, Burst: s.After, Over: true,
			}},
		}), nil
	case nft.Discard: // delete @tried { … }
		return append(encodeKey(f, s.Key), &expr.Dynset{
			SrcRegKey: unix.NFT_REG_1, SetName: s.Set, Operation: dynsetDelete,
		}), nil
	case nft.Masquerade: // masquerade fully-random
		return []expr.Any{&expr.Masq{FullyRandom: true}}, nil
	case nft.Reject:
		return []expr.Any{encodeReject(f, s)}, nil
	case nft.Verdict:
		return []expr.Any{&expr.Verdict{Kind: verdictKinds[s.Kind], Chain: s.Chain}}, nil
	}
	return nil, fmt.Errorf("unknown statement %T", s)
}

var matches = [...][]expr.Any{
	nft.MatchDNAT:         encodeBit(expr.CtKeySTATUS, statusDNAT, expr.CmpOpNeq),
	nft.MatchUntranslated: encodeBit(expr.CtKeySTATUS, statusDNAT, expr.CmpOpEq),
	nft.MatchFirst:        encodeBit(expr.CtKeySTATUS, statusConfirmed, expr.CmpOpEq),
	nft.MatchInvalid:      encodeBit(expr.CtKeySTATE, expr.CtStateBitINVALID, expr.CmpOpNeq),
	nft.MatchEstablished:  encodeBit(expr.CtKeySTATE, expr.CtStateBitESTABLISHED, expr.CmpOpNeq),
	nft.MatchFromNode:     isLocal(expr.Fib{FlagSADDR: true}, expr.CmpOpEq),
	nft.MatchToNode:       isLocal(expr.Fib{FlagDADDR: true}, expr.CmpOpEq),
	nft.MatchNotToNode:    isLocal(expr.Fib{FlagDADDR: true}, expr.CmpOpNeq),
	nft.MatchOriginal: {
		&expr.Ct{Key: expr.CtKeyDIRECTION, Register: unix.NFT_REG_1}, compare(expr.CmpOpEq, expr.CtDirOriginal),
	},
	nft.MatchSYNACK: {
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: unix.NFT_REG_1}, compare(expr.CmpOpEq, unix.IPPROTO_TCP),
		&expr.Payload{Base: expr.PayloadBaseTransportHeader, Offset: tcpFlags, Len: 1, DestRegister: unix.NFT_REG_1},
		mask(synAndACK), compare(expr.CmpOpEq, synAndACK),
	},
	nft.MatchManyPackets: { // in network order, the order of bytes is that of numbers
		&expr.Ct{Key: expr.CtKeyPKTS, Register: unix.NFT_REG_1},
		&expr.Byteorder{
			SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Op: expr.ByteorderHton, Len: 8, Size: 8,
		},
		compare(expr.CmpOpGt, binary.BigEndian.AppendUint64(nil, nft.FastPathAfter)...),
	},
}

// compare compares the first register.
func compare(op expr.CmpOp, data ...byte) expr.Any {
	return &expr.Cmp{Op: op, Register: unix.NFT_REG_1, Data: data}
}

// mask leaves some bits of the first register.
func mask(bits ...byte) expr.Any {
	return &expr.Bitwise{
		SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Len: uint32(len(bits)),
		Mask: bits, Xor: make([]byte, len(bits)),
	}
}

// isLocal compares the type of an address.
func isLocal(fib expr.Fib, op expr.CmpOp) []expr.Any {
	fib.Register, fib.ResultADDRTYPE = unix.NFT_REG_1, true
	return []expr.Any{&fib, compare(op, binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL)...)}
}

func equal(not bool) expr.CmpOp {
	if not {
		return expr.CmpOpNeq
	}
	return expr.CmpOpEq
}

// Bits of a connection's status (linux/netfilter/nf_conntrack_common.h), and of a TCP header.
const (
	statusConfirmed = 1 << 3 // IPS_CONFIRMED
	statusDNAT      = 1 << 5 // IPS_DST_NAT

	tcpFlags, synAndACK = 13, 0x12 // the offset of a TCP header's flags, and two of these
)

// encodeBit compares a bit of a connection's status or state with 0.
func encodeBit(key expr.CtKey, bit uint32, op expr.CmpOp) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: key, Register: unix.NFT_REG_1},
		mask(binary.NativeEndian.AppendUint32(nil, bit)...), compare(op, 0, 0, 0, 0),
	}
}

func encodeKey(f model.Family, key nft.Key) []expr.Any {
	var all []expr.Any
	offset := 0
	for _, e := range key {
		if len(e.Hashed()) > 0 {
			return append(all, encodeHash(f, e, offset)...) // slots are last
		}
		load, width := encodeLoad(f, e, register(offset))
		all = append(all, load)
		offset += width
	}
	return all
}

// encodeHash puts the client's address where nft does, behind the key.
func encodeHash(f model.Family, e nft.Expr, offset int) []expr.Any {
	const behind = 20
	var all []expr.Any
	length := 0
	for _, field := range e.Hashed() {
		load, width := encodeLoad(f, field, register(offset+behind+length))
		all = append(all, load)
		length += width
	}
	return append(all, &expr.Hash{
		SourceRegister: register(offset + behind), DestRegister: register(offset), Length: uint32(length),
		Modulus: e.Mod, Seed: model.HashSeed, Type: expr.HashTypeJenkins,
	})
}

const dynsetDelete = 2 // NFT_DYNSET_OP_DELETE, Linux 5.4

// encodeClient changes a map of clients. The key is in the first register, and the data in the one behind it.
func encodeClient(f model.Family, change *expr.Dynset) []expr.Any {
	const data = 16 // where the second wide register begins
	client, _ := encodeLoad(f, nft.Expr{Field: nft.SourceAddr}, unix.NFT_REG_1)
	addr, width := encodeLoad(f, nft.Expr{Field: nft.DestAddr}, register(data))
	port, _ := encodeLoad(f, nft.Expr{Field: nft.DestPort}, register(data+width))
	change.SrcRegKey, change.SrcRegData = unix.NFT_REG_1, register(data)
	return []expr.Any{client, addr, port, change}
}

// encodeMatchInterface compares the whole name, with its zeros, or its beginning.
func encodeMatchInterface(s nft.MatchInterface) []expr.Any {
	name := []byte(s.Name)
	if !s.Wildcard {
		name = append(name, make([]byte, unix.IFNAMSIZ-len(name))...)
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: unix.NFT_REG_1}, compare(equal(s.Not), name...),
	}
}

// encodeLoad loads a field into a register and returns how many bytes of registers it takes.
func encodeLoad(f model.Family, e nft.Expr, reg uint32) (expr.Any, int) {
	addr := nft.Addr.Width(f)
	const narrow = 4
	switch e.Field {
	case nft.SourceAddr, nft.DestAddr:
		return &expr.Payload{
			Base: expr.PayloadBaseNetworkHeader, Offset: addrOffset(f, e.Field), Len: uint32(addr), DestRegister: reg,
		}, addr
	case nft.Protocol:
		return &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg}, narrow
	case nft.DestPort:
		return &expr.Payload{Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2, DestRegister: reg}, narrow
	case nft.OrigDestAddr:
		key := [...]expr.CtKey{model.IPv4: expr.CtKeyDSTIP, model.IPv6: expr.CtKeyDSTIP6}[f]
		return &expr.Ct{Key: key, Register: reg, Direction: expr.CtDirOriginal}, addr
	case nft.OrigDestPort:
		return &expr.Ct{Key: expr.CtKeyPROTODST, Register: reg, Direction: expr.CtDirOriginal}, narrow
	case nft.SourcePort:
		return &expr.Payload{Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 2, DestRegister: reg}, narrow
	case nft.Constant:
		return &expr.Numgen{Register: reg, Modulus: 1, Type: unix.NFT_NG_RANDOM, Offset: e.Value}, narrow
	case nft.RandomSlot, nft.HashSlot, nft.FlowSlot:
	}
	return &expr.Numgen{Register: reg, Modulus: e.Mod, Type: unix.NFT_NG_RANDOM}, narrow
}

func addrOffset(f model.Family, field nft.Field) uint32 {
	if field == nft.SourceAddr {
		return [...]uint32{model.IPv4: 12, model.IPv6: 8}[f] // struct iphdr, struct ipv6hdr
	}
	return [...]uint32{model.IPv4: 16, model.IPv6: 24}[f]
}

// encodeMatchSource compares whole bytes where the prefix ends between two, as nft does.
func encodeMatchSource(f model.Family, s nft.MatchSource) []expr.Any {
	prefix := s.Prefix.Masked()
	addr, bits := prefix.Addr().AsSlice(), prefix.Bits()
	if bits > 0 && bits%8 == 0 {
		n := bits / 8
		return []expr.Any{
			&expr.Payload{
				Base: expr.PayloadBaseNetworkHeader, Offset: addrOffset(f, nft.SourceAddr), Len: uint32(n),
				DestRegister: unix.NFT_REG_1,
			},
			compare(equal(s.Not), addr[:n]...),
		}
	}
	load, _ := encodeLoad(f, nft.Expr{Field: nft.SourceAddr}, unix.NFT_REG_1)
	return []expr.Any{load, mask(net.CIDRMask(bits, 8*len(addr))...), compare(equal(s.Not), addr...)}
}

func encodeReject(f model.Family, s nft.Reject) expr.Any {
	if s.TCPReset {
		return &expr.Reject{Type: unix.NFT_REJECT_TCP_RST}
	}
	portUnreach := [...]uint8{model.IPv4: 3, model.IPv6: 4}[f] // ICMP_PORT_UNREACH, ICMPV6_PORT_UNREACH
	return &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: portUnreach}
}
