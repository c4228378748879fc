package tracer

import (
	"encoding/binary"
	"math"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/others"
)

// fields are the places of addresses in a packet, and the keys of those of its connection.
type fields struct {
	table         nftables.TableFamily
	addr          nftables.SetDatatype
	source, dest  uint32 // offsets
	size          uint32
	ctSource, ct  expr.CtKey
	behindAddress uint32 // the register behind one that begins with an address in the first
}

func fieldsOf(f model.Family) fields {
	if f == model.IPv6 {
		return fields{
			nftables.TableFamilyIPv6, nftables.TypeIP6Addr, 8, 24, 16,
			expr.CtKeySRCIP6, expr.CtKeyDSTIP6, unix.NFT_REG_2,
		}
	}
	return fields{
		nftables.TableFamilyIPv4, nftables.TypeIPAddr, 12, 16, 4,
		expr.CtKeySRCIP, expr.CtKeyDSTIP, unix.NFT_REG32_01,
	}
}

const destinationSet = "destinations"

// program makes the table.
type program struct {
	conn   *nftables.Conn
	filter Filter
	fields
	to *nftables.Table
}

// add adds the table:
//
//	set destinations { type ipv4_addr; size 1; flags timeout; elements = { DEST timeout LIFETIME } }
//	set clients { type ipv4_addr . inet_service; size 1; flags dynamic,timeout; timeout LIFETIME }
//	set senders, set answered, set early { the same }
//	chain prerouting-begin { type filter hook prerouting priority -2147483648; FIRST }
//	chain prerouting-early-answers { type filter hook prerouting priority -2147483648; EARLY }
//	chain prerouting-answers { type filter hook prerouting priority -199; REDIRECT; ANSWER }
//	chain prerouting-untracked { type filter hook prerouting priority -198; ct state untracked }
//	chain prerouting-known { type filter hook prerouting priority -198; KNOWN }
//	chain prerouting-end { type filter hook prerouting priority 2147483647; }
//	the same for output; for input, forward and postrouting a chain that begins, and one that ends
//	chain postrouting-end { type filter hook postrouting priority 2147483647; SENT }
//
// Something may drop packets before connection tracking, or keep them from being tracked, so FIRST is before all other
// rules, and EARLY finds answers without connection tracking: what goes to the client's address and port, or to those
// that the first packet had in the end. Other packets match no rule: they meet the first expressions of six at the hook
// where they begin.
//
// The element of destinations has a timeout so that rules which nobody removes cease to match.
func (p *program) add(name string, flags nftables.TableFlags) *nftables.Table {
	p.to = p.conn.AddTable(&nftables.Table{Family: p.table, Name: name, Flags: flags})
	dests := &nftables.Set{Table: p.to, Name: destinationSet, KeyType: p.addr, HasTimeout: true, Size: 1}
	// The errors of AddSet are those of sets with data and intervals.
	_ = p.conn.AddSet(dests, []nftables.SetElement{{Key: p.filter.Dest.Addr().AsSlice(), Timeout: p.filter.Lifetime}})
	clients, senders, answered, early := p.one("clients"), p.one("senders"), p.one("answered"), p.one("early")
	for _, h := range others.Hooks {
		name := string(h.Hook) + "-"
		begin := p.base(name+First, h.Number, math.MinInt32)
		if h.Start {
			p.rule(begin, p.first(dests, clients))
			earlyAnswers := p.base(name+EarlyAnswer, h.Number, math.MinInt32)
			p.rule(earlyAnswers, p.earlyAnswer(clients, early))
			p.rule(earlyAnswers, p.earlyAnswer(senders, early))
			answers := p.base(name+Answer, h.Number, afterConntrack)
			p.rule(answers, p.redirect())
			p.rule(answers, p.answer(dests, clients, answered))
			p.rule(p.base(name+Untracked, h.Number, afterAnswers), state(expr.CtStateBitUNTRACKED))
			p.rule(p.base(name+Known, h.Number, afterAnswers), p.known(clients))
		}
		if end := p.base(name+End, h.Number, math.MaxInt32); h.Hook == others.Postrouting {
			p.rule(end, p.sent(dests, clients, senders))
		}
	}
	return p.to
}

// one adds a set for one address and port. A full one takes no more, and then the rule that would add an
// element does not match: one connection is traced.
func (p *program) one(name string) *nftables.Set {
	s := &nftables.Set{
		Table: p.to, Name: name, KeyType: nftables.MustConcatSetType(p.addr, nftables.TypeInetService),
		Concatenation: true, Dynamic: true, HasTimeout: true, Timeout: p.filter.Lifetime, Size: 1,
	}
	_ = p.conn.AddSet(s, nil)
	return s
}

func (p *program) base(name string, hook nftables.ChainHook, priority nftables.ChainPriority) *nftables.Chain {
	accept := nftables.ChainPolicyAccept
	return p.conn.AddChain(&nftables.Chain{
		Table: p.to, Name: name, Type: nftables.ChainTypeFilter, Hooknum: &hook, Priority: &priority, Policy: &accept,
	})
}

func (p *program) rule(c *nftables.Chain, exprs []expr.Any) {
	p.conn.AddRule(&nftables.Rule{Table: p.to, Chain: c, Exprs: exprs})
}

// first are the expressions of the rule for first packets; for TCP over IPv4:
//
//	ip daddr @destinations meta l4proto tcp tcp dport PORT [ip saddr SOURCE] [tcp sport PORT]
//	tcp flags & (fin | syn | rst | ack) == syn
//	add @clients { ip saddr . tcp sport } meta nftrace set 1
//
// A SYN that is sent again matches as well. Of other protocols, all packets of the client look like the first one, so
// there is "ip saddr . udp sport != @clients" before add.
func (p *program) first(dests, clients *nftables.Set) []expr.Any {
	exprs := []expr.Any{
		network(p.dest, p.size), in(dests, false),
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: unix.NFT_REG_1}, is(byte(p.filter.Protocol)),
		transport(2, 2, unix.NFT_REG_1), is(binary.BigEndian.AppendUint16(nil, p.filter.Dest.Port())...),
	}
	if from := p.filter.Source.Addr(); from.IsValid() {
		exprs = append(exprs, network(p.source, p.size), is(from.AsSlice()...))
	}
	if port := p.filter.Source.Port(); port != 0 {
		exprs = append(exprs, transport(0, 2, unix.NFT_REG_1), is(binary.BigEndian.AppendUint16(nil, port)...))
	}
	if p.filter.Protocol == model.TCP {
		const flags, fin = 13, 1
		exprs = append(exprs, transport(flags, 1, unix.NFT_REG_1), &expr.Bitwise{
			SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1,
			Len: 1, Mask: []byte{fin | FlagSYN | FlagRST | FlagACK}, Xor: []byte{0},
		}, is(FlagSYN))
	}
	exprs = append(exprs, network(p.source, p.size), transport(0, 2, p.behindAddress))
	if p.filter.Protocol != model.TCP {
		exprs = append(exprs, in(clients, true))
	}
	return append(append(exprs, addTo(clients)), trace()...)
}

// answer are the expressions of the rule for answers, also ICMP errors:
//
//	ct direction reply ct original ip daddr @destinations ct original ip saddr . ct original proto-src @clients
//	… != @answered add @answered { … } meta nftrace set 1
func (p *program) answer(dests, clients, answered *nftables.Set) []expr.Any {
	return append(append(p.tracked(expr.CtDirReply, dests, clients), in(answered, true), addTo(answered)), trace()...)
}

// sent are the expressions of the rule that notes what source the first packet has in the end:
//
//	ct direction original ct original ip daddr @destinations ct original ip saddr . ct original proto-src @clients
//	add @senders { ip saddr . tcp sport }
func (p *program) sent(dests, clients, senders *nftables.Set) []expr.Any {
	return append(p.tracked(expr.CtDirOriginal, dests, clients),
		network(p.source, p.size), transport(0, 2, p.behindAddress), addTo(senders))
}

// tracked are the expressions for packets of the connection in one direction.
func (p *program) tracked(direction byte, dests, clients *nftables.Set) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeyDIRECTION, Register: unix.NFT_REG_1}, is(direction),
		original(p.ct, unix.NFT_REG_1), in(dests, false),
		original(p.ctSource, unix.NFT_REG_1), original(expr.CtKeyPROTOSRC, p.behindAddress), in(clients, false),
	}
}

// redirect are the expressions of the rule for ICMP redirects, which are not the answer and come before it:
//
//	meta l4proto icmp icmp type redirect accept
func (p *program) redirect() []expr.Any {
	protocol, redirect := byte(unix.IPPROTO_ICMP), byte(5)
	if p.table == nftables.TableFamilyIPv6 {
		protocol, redirect = unix.IPPROTO_ICMPV6, 137
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: unix.NFT_REG_1}, is(protocol),
		transport(0, 1, unix.NFT_REG_1), is(redirect), &expr.Verdict{Kind: expr.VerdictAccept},
	}
}

// earlyAnswer are the expressions of the rule for answers that may not be tracked:
//
//	meta l4proto tcp ip daddr . tcp dport @clients
//	… != @early add @early { … } meta nftrace set 1
func (p *program) earlyAnswer(clients, early *nftables.Set) []expr.Any {
	return append([]expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: unix.NFT_REG_1}, is(byte(p.filter.Protocol)),
		network(p.dest, p.size), transport(2, 2, p.behindAddress), in(clients, false), in(early, true), addTo(early),
	}, trace()...)
}

// known are the expressions of the rule for packets of the client, of which connection tracking has an entry already:
//
//	meta l4proto tcp ip saddr . tcp sport @clients ct state established
func (p *program) known(clients *nftables.Set) []expr.Any {
	return append([]expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: unix.NFT_REG_1}, is(byte(p.filter.Protocol)),
		network(p.source, p.size), transport(0, 2, p.behindAddress), in(clients, false),
	}, state(expr.CtStateBitESTABLISHED)...)
}

// state are the expressions "ct state", for the bit of a state.
func state(bit uint32) []expr.Any {
	const size = 4
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: unix.NFT_REG_1},
		&expr.Bitwise{
			SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Len: size,
			Mask: binary.NativeEndian.AppendUint32(nil, bit), Xor: make([]byte, size),
		},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: unix.NFT_REG_1, Data: make([]byte, size)},
	}
}

// original loads a key of the original direction, of which the number is 0.
func original(key expr.CtKey, register uint32) expr.Any {
	return &expr.Ct{Key: key, Register: register, OptDirection: true}
}

func network(offset, size uint32) expr.Any {
	return &expr.Payload{DestRegister: unix.NFT_REG_1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size}
}

func transport(offset, size, register uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: size}
}

func is(data ...byte) expr.Any {
	return &expr.Cmp{Op: expr.CmpOpEq, Register: unix.NFT_REG_1, Data: data}
}

func in(s *nftables.Set, not bool) expr.Any {
	return &expr.Lookup{SourceRegister: unix.NFT_REG_1, SetName: s.Name, SetID: s.ID, Invert: not}
}

func addTo(s *nftables.Set) expr.Any {
	return &expr.Dynset{SrcRegKey: unix.NFT_REG_1, SetName: s.Name, SetID: s.ID, Operation: unix.NFT_DYNSET_OP_ADD}
}

func trace() []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: unix.NFT_REG_1, Data: []byte{1}},
		&expr.Meta{Key: expr.MetaKeyNFTRACE, SourceRegister: true, Register: unix.NFT_REG_1},
	}
}
