package tracer

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// writer writes a rule as nft would, as far as its expressions are common ones. Others become an
// ellipsis or the name of the extension.
type writer struct {
	words    []string
	operands map[uint32]operand // what registers hold that no expression has used yet
	l4       string             // the protocol that the rule matches
	elements func(set string) [][]byte
}

// operand is what an expression loaded: its text, and the text of data compared with it.
type operand struct {
	text string
	show func([]byte) string
	mask []byte
	size uint32 // in bytes; 4 if it is 0
}

// text returns the text of a rule. elements returns the elements of an anonymous set.
func text(exprs []expr.Any, elements func(set string) [][]byte) string {
	w := writer{operands: map[uint32]operand{}, elements: elements, l4: "th"}
	for _, e := range exprs {
		w.write(e)
	}
	return strings.Join(w.words, " ")
}

// say adds words. A match of the protocol is a part of "tcp dport 80", and one of the family a part
// of "ip saddr 10.0.0.1".
func (w *writer) say(format string, args ...any) {
	said := fmt.Sprintf(format, args...)
	w.words = slices.DeleteFunc(w.words, func(before string) bool {
		switch {
		case strings.HasPrefix(said, "ip "):
			return before == "meta nfproto ipv4"
		case strings.HasPrefix(said, "ip6 "):
			return before == "meta nfproto ipv6"
		}
		return strings.HasPrefix(said, w.l4+" ") && before == "meta l4proto "+w.l4
	})
	w.words = append(w.words, said)
}

// register returns the number of a register of 32 bits: the kernel counts those of 128 bits from 1
// on, those of 32 bits from 8 on, and both are the same memory.
func register(n uint32) uint32 {
	if n >= unix.NFT_REG_1 && n <= unix.NFT_REG_4 {
		return unix.NFT_REG32_00 + (n-unix.NFT_REG_1)*4
	}
	return n
}

func (w *writer) write(e expr.Any) {
	switch e := e.(type) {
	case *expr.Payload:
		w.load(e.DestRegister, w.payload(e))
	case *expr.Meta:
		if !e.SourceRegister {
			w.load(e.Register, meta(e.Key))
			return
		}
		w.say("%s set %s", meta(e.Key).text, w.at(e.Register).text)
	case *expr.Ct:
		if !e.SourceRegister {
			w.load(e.Register, ct(e))
			return
		}
		w.say("%s set %s", ct(e).text, w.at(e.Register).text)
	case *expr.Fib:
		w.load(e.Register, operand{text: "fib …", show: hexadecimal})
	case *expr.Numgen:
		w.load(e.Register, operand{text: fmt.Sprintf("numgen random mod %d", e.Modulus), show: hexadecimal})
	case *expr.Hash:
		w.load(e.DestRegister, operand{text: fmt.Sprintf("jhash … mod %d", e.Modulus), show: hexadecimal})
	case *expr.Immediate:
		w.load(e.Register, immediate(e.Data))
	case *expr.Bitwise:
		o := w.at(e.SourceRegister)
		o.mask = e.Mask
		w.load(e.DestRegister, o)
	case *expr.Cmp:
		w.compare(e)
	case *expr.Range:
		o := w.at(e.Register)
		w.say("%s %s%s-%s", o.text, negation(e.Op == expr.CmpOpNeq), o.show(e.FromData), o.show(e.ToData))
	case *expr.Lookup:
		w.lookup(e)
	default:
		w.statement(e)
	}
}

func (w *writer) load(n uint32, o operand) { w.operands[register(n)] = o }

// at takes what a register holds.
func (w *writer) at(n uint32) operand {
	o, ok := w.operands[register(n)]
	delete(w.operands, register(n))
	if !ok {
		return operand{text: "…", show: hexadecimal}
	}
	return o
}

// key takes what a register and those behind it hold: the parts of a key.
func (w *writer) key(n uint32) operand {
	first := w.at(n)
	o := first
	const registerSize = 4
	for n, size := register(n), first.size; ; {
		n += max(1, (size+registerSize-1)/registerSize)
		next, ok := w.operands[n]
		if !ok {
			return o
		}
		delete(w.operands, n)
		o.text += " . " + next.text
		o.show, size = hexadecimal, next.size
	}
}

func (o operand) isAddress() bool { return strings.HasSuffix(o.text, "addr") }

// statement writes expressions that do something.
func (w *writer) statement(e expr.Any) {
	switch e := e.(type) {
	case *expr.Counter: // its value is no part of the rule
	case *expr.Verdict:
		w.verdict(e)
	case *expr.Reject:
		w.say("reject%s", rejectWith(e))
	case *expr.Masq:
		w.say("masquerade")
	case *expr.NAT:
		kind := "dnat"
		if e.Type == expr.NATTypeSourceNAT {
			kind = "snat"
		}
		w.say("%s to %s", kind, w.at(e.RegAddrMin).text)
	case *expr.Redir:
		w.say("redirect")
	case *expr.Limit:
		over := ""
		if e.Over {
			over = "over "
		}
		w.say("limit rate %s%d/%s", over, e.Rate, limitUnits[e.Unit])
	case *expr.Log:
		w.say("log")
	case *expr.Notrack:
		w.say("notrack")
	case *expr.Dynset:
		w.say("update @%s { %s }", e.SetName, w.key(e.SrcRegKey).text)
	case *expr.Queue:
		w.say("queue to %d", e.Num)
	case *expr.Objref:
		w.say("object %s", e.Name)
	case *expr.Match:
		if e.Name != "comment" { // see Line.note
			w.say("xt match %q", e.Name)
		}
	case *expr.Target:
		w.say("xt target %q", e.Name)
	default:
		w.say("…")
	}
}

var limitUnits = map[expr.LimitTime]string{
	expr.LimitTimeSecond: "second", expr.LimitTimeMinute: "minute", expr.LimitTimeHour: "hour",
	expr.LimitTimeDay: "day", expr.LimitTimeWeek: "week",
}

func (w *writer) verdict(v *expr.Verdict) {
	name := map[expr.VerdictKind]string{
		expr.VerdictDrop: "drop", expr.VerdictAccept: "accept", expr.VerdictReturn: "return", expr.VerdictContinue: "continue",
		expr.VerdictJump: "jump", expr.VerdictGoto: "goto",
	}[v.Kind]
	if name == "" {
		name = "…"
	}
	w.say("%s", strings.TrimSpace(name+" "+v.Chain))
}

// rejectWith returns the answer of a reject: enum nft_reject_types, where ICMP is 0.
func rejectWith(r *expr.Reject) string {
	switch r.Type {
	case unix.NFT_REJECT_TCP_RST:
		return " with tcp reset"
	case unix.NFT_REJECT_ICMPX_UNREACH:
		return ""
	}
	return " with an ICMP error"
}

func (w *writer) compare(e *expr.Cmp) {
	o := w.at(e.Register)
	isProtocol := o.text == "meta l4proto" || o.text == "ip protocol" || o.text == "ip6 nexthdr"
	if e.Op == expr.CmpOpEq && isProtocol {
		defer func() { w.l4 = o.show(e.Data) }()
	}
	zero := strings.Trim(string(e.Data), "\x00") == ""
	switch {
	case o.mask == nil:
		w.say("%s %s%s", o.text, operator(e.Op), o.show(e.Data))
	case e.Op == expr.CmpOpNeq && zero: // "ct state new": any of the bits
		w.say("%s %s", o.text, o.show(o.mask))
	case o.isAddress():
		w.say("%s %s%s/%d", o.text, operator(e.Op), o.show(e.Data), ones(o.mask))
	default:
		w.say("%s & %s %s %s", o.text, o.show(o.mask), strings.TrimSpace(cmp.Or(operator(e.Op), "==")), o.show(e.Data))
	}
}

func operator(op expr.CmpOp) string {
	switch op {
	case expr.CmpOpEq:
		return ""
	case expr.CmpOpNeq:
		return "!= "
	case expr.CmpOpLt:
		return "< "
	case expr.CmpOpLte:
		return "<= "
	case expr.CmpOpGt:
		return "> "
	case expr.CmpOpGte:
		return ">= "
	}
	return "… "
}

func negation(is bool) string {
	if is {
		return "!= "
	}
	return ""
}

func ones(mask []byte) (n int) {
	for _, b := range mask {
		for ; b != 0; b <<= 1 {
			n++
		}
	}
	return n
}

// lookup writes a lookup in a set or a map.
func (w *writer) lookup(e *expr.Lookup) {
	o := w.key(e.SourceRegister)
	set := "@" + e.SetName
	if strings.HasPrefix(e.SetName, "__") { // an anonymous one
		set = w.anonymous(e.SetName, o)
	}
	switch {
	case e.IsDestRegSet && e.DestRegister == unix.NFT_REG_VERDICT:
		w.say("%s vmap %s", o.text, set)
	case e.IsDestRegSet:
		w.load(e.DestRegister, operand{text: o.text + " map " + set, show: hexadecimal})
	default:
		w.say("%s %s%s", o.text, negation(e.Invert), set)
	}
}

func (w *writer) anonymous(name string, o operand) string {
	const few = 5
	elements := w.elements(name)
	if len(elements) == 0 || len(elements) > few {
		return "{ … }"
	}
	var list []string
	for _, e := range elements {
		list = append(list, o.show(e))
	}
	return "{ " + strings.Join(list, ", ") + " }"
}

// address is one of an address of a size.
func address(name string, size uint32) operand {
	return operand{text: name, size: size, show: func(b []byte) string {
		whole := make([]byte, size)
		copy(whole, b)
		a, _ := netip.AddrFromSlice(whole)
		if len(b) < int(size) { // nft loads only the bytes of a prefix that ends with a byte
			return netip.PrefixFrom(a, len(b)*8).String()
		}
		return a.String()
	}}
}

func (w *writer) payload(e *expr.Payload) operand {
	switch {
	case e.Base == expr.PayloadBaseNetworkHeader:
		switch {
		case e.Offset == 12 && e.Len <= 4:
			return address("ip saddr", 4)
		case e.Offset == 16 && e.Len <= 4:
			return address("ip daddr", 4)
		case e.Offset == 8 && e.Len > 1 && e.Len <= 16:
			return address("ip6 saddr", 16)
		case e.Offset == 24 && e.Len <= 16:
			return address("ip6 daddr", 16)
		case e.Offset == 9 && e.Len == 1:
			return operand{text: "ip protocol", show: protocol}
		case e.Offset == 6 && e.Len == 1:
			return operand{text: "ip6 nexthdr", show: protocol}
		}
	case e.Base == expr.PayloadBaseTransportHeader && e.Len == 2 && e.Offset == 0:
		return operand{text: w.l4 + " sport", show: decimal}
	case e.Base == expr.PayloadBaseTransportHeader && e.Len == 2 && e.Offset == 2:
		return operand{text: w.l4 + " dport", show: decimal}
	case e.Base == expr.PayloadBaseTransportHeader && e.Len == 1 && e.Offset == 13:
		return operand{text: "tcp flags", show: hexadecimal}
	}
	return operand{text: "…", show: hexadecimal}
}

func meta(k expr.MetaKey) operand {
	switch k {
	case expr.MetaKeyIIFNAME:
		return operand{text: "iifname", show: name, size: unix.IFNAMSIZ}
	case expr.MetaKeyOIFNAME:
		return operand{text: "oifname", show: name, size: unix.IFNAMSIZ}
	case expr.MetaKeyL4PROTO:
		return operand{text: "meta l4proto", show: protocol}
	case expr.MetaKeyNFPROTO:
		return operand{text: "meta nfproto", show: func(b []byte) string {
			if len(b) > 0 && b[0] == unix.NFPROTO_IPV6 {
				return "ipv6"
			}
			return "ipv4"
		}}
	case expr.MetaKeyMARK:
		return operand{text: "meta mark", show: native}
	case expr.MetaKeyIIF:
		return operand{text: "iif", show: native}
	case expr.MetaKeyOIF:
		return operand{text: "oif", show: native}
	case expr.MetaKeyNFTRACE:
		return operand{text: "meta nftrace", show: hexadecimal}
	default:
		return operand{text: "meta …", show: hexadecimal}
	}
}

func ct(e *expr.Ct) operand {
	switch e.Key {
	case expr.CtKeySTATE:
		return operand{text: "ct state", show: bits(map[uint32]string{
			expr.CtStateBitINVALID: "invalid", expr.CtStateBitESTABLISHED: "established", expr.CtStateBitRELATED: "related",
			expr.CtStateBitNEW: "new", expr.CtStateBitUNTRACKED: "untracked",
		})}
	case expr.CtKeySTATUS:
		return operand{text: "ct status", show: bits(map[uint32]string{1 << 1: "seen-reply", 1 << 4: "snat", 1 << 5: "dnat"})}
	case expr.CtKeyMARK:
		return operand{text: "ct mark", show: native}
	case expr.CtKeyDIRECTION:
		return operand{text: "ct direction", show: hexadecimal}
	default:
		direction := "ct original "
		if e.Direction != 0 {
			direction = "ct reply "
		}
		switch e.Key {
		case expr.CtKeySRCIP:
			return address(direction+"ip saddr", 4)
		case expr.CtKeyDSTIP:
			return address(direction+"ip daddr", 4)
		case expr.CtKeySRCIP6:
			return address(direction+"ip6 saddr", 16)
		case expr.CtKeyDSTIP6:
			return address(direction+"ip6 daddr", 16)
		case expr.CtKeyPROTOSRC:
			return operand{text: direction + "proto-src", show: decimal}
		case expr.CtKeyPROTODST:
			return operand{text: direction + "proto-dst", show: decimal}
		default:
			return operand{text: "ct …", show: hexadecimal}
		}
	}
}

func immediate(data []byte) operand {
	if a, ok := netip.AddrFromSlice(data); ok {
		return operand{text: a.String(), show: hexadecimal}
	}
	return operand{text: hexadecimal(data), show: hexadecimal}
}

// bits shows the set bits of a number by their names.
func bits(names map[uint32]string) func([]byte) string {
	return func(b []byte) string {
		if len(b) != 4 {
			return hexadecimal(b)
		}
		var list []string
		for n, bit := binary.NativeEndian.Uint32(b), uint32(1); n != 0; bit <<= 1 {
			if n&bit == 0 {
				continue
			}
			n &^= bit
			if names[bit] == "" {
				return hexadecimal(b)
			}
			list = append(list, names[bit])
		}
		return strings.Join(list, ",")
	}
}

func hexadecimal(b []byte) string { return fmt.Sprintf("0x%x", b) }

func native(b []byte) string {
	if len(b) != 4 {
		return hexadecimal(b)
	}
	return fmt.Sprintf("%#x", binary.NativeEndian.Uint32(b))
}

func decimal(b []byte) string {
	if len(b) < 2 {
		return hexadecimal(b)
	}
	return strconv.Itoa(int(binary.BigEndian.Uint16(b)))
}

// name shows the name of an interface; a prefix of one ends without a zero.
func name(b []byte) string {
	before, _, whole := strings.Cut(string(b), "\x00")
	if whole {
		return strconv.Quote(before)
	}
	return strconv.Quote(before + "*")
}

func protocol(b []byte) string {
	if len(b) == 0 {
		return hexadecimal(b)
	}
	switch b[0] {
	case unix.IPPROTO_ICMP:
		return "icmp"
	case unix.IPPROTO_ICMPV6:
		return "ipv6-icmp"
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP:
		return model.Protocol(b[0]).String()
	}
	return strconv.Itoa(int(b[0]))
}
