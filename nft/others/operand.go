package others

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"golang.org/x/sys/unix"
)

// address returns the operand for an address of size bytes.
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

var families4and6 = map[string]string{string(rune(unix.NFPROTO_IPV4)): "ipv4", string(rune(unix.NFPROTO_IPV6)): "ipv6"}

var metas = map[expr.MetaKey]operand{
	expr.MetaKeyIIFNAME: {text: "iifname", show: name, size: unix.IFNAMSIZ},
	expr.MetaKeyOIFNAME: {text: "oifname", show: name, size: unix.IFNAMSIZ},
	expr.MetaKeyL4PROTO: {text: "meta l4proto", show: protocol},
	expr.MetaKeyNFPROTO: {text: "meta nfproto", show: words(families4and6)},
	expr.MetaKeyMARK:    {text: "meta mark", show: native},
	expr.MetaKeyIIF:     {text: "iif", show: native},
	expr.MetaKeyOIF:     {text: "oif", show: native},
	expr.MetaKeyNFTRACE: {text: "meta nftrace", show: hexadecimal},
}

func meta(k expr.MetaKey) operand {
	if o, ok := metas[k]; ok {
		return o
	}
	return operand{text: "meta …", show: hexadecimal}
}

var (
	states = map[uint32]string{
		expr.CtStateBitINVALID: "invalid", expr.CtStateBitESTABLISHED: "established", expr.CtStateBitRELATED: "related",
		expr.CtStateBitNEW: "new", expr.CtStateBitUNTRACKED: "untracked",
	}
	// enum ip_conntrack_status
	statuses = map[uint32]string{
		1 << 0: "expected", 1 << 1: "seen-reply", 1 << 2: "assured", 1 << 3: "confirmed", 1 << 4: "snat", 1 << 5: "dnat",
		1 << 9: "dying",
	}
	directions = map[string]string{"\x00": "original", "\x01": "reply"} // enum ip_conntrack_dir
	conntracks = map[expr.CtKey]operand{
		expr.CtKeySTATE:     {text: "ct state", show: bits(states)},
		expr.CtKeySTATUS:    {text: "ct status", show: bits(statuses)},
		expr.CtKeyMARK:      {text: "ct mark", show: native},
		expr.CtKeyDIRECTION: {text: "ct direction", show: words(directions)},
	}
	tuples = map[expr.CtKey]operand{
		expr.CtKeySRCIP: address("ip saddr", 4), expr.CtKeyDSTIP: address("ip daddr", 4),
		expr.CtKeySRCIP6: address("ip6 saddr", 16), expr.CtKeyDSTIP6: address("ip6 daddr", 16),
		expr.CtKeyPROTOSRC: {text: "proto-src", show: decimal}, expr.CtKeyPROTODST: {text: "proto-dst", show: decimal},
	}
)

func ct(e *expr.Ct) operand {
	if o, ok := conntracks[e.Key]; ok {
		return o
	}
	o, ok := tuples[e.Key]
	switch {
	case !ok:
		return operand{text: "ct …", show: hexadecimal}
	case e.Direction != 0:
		o.text = "ct reply " + o.text
	default:
		o.text = "ct original " + o.text
	}
	return o
}

// value is what a mark is set to: a constant, or what was loaded, with the bits that were changed.
func (o operand) value() string {
	const size = 4
	switch {
	case o.data != nil:
		return native(o.data)
	case len(o.mask) != size || len(o.xor) != size:
		return o.text
	}
	and, xor := binary.NativeEndian.Uint32(o.mask), binary.NativeEndian.Uint32(o.xor)
	switch {
	case xor == 0:
		return fmt.Sprintf("%s & %#x", o.text, and)
	case and == ^xor:
		return fmt.Sprintf("%s | %#x", o.text, xor)
	}
	return fmt.Sprintf("(%s & %#x) ^ %#x", o.text, and, xor)
}

// fib is the type of an address, for the node.
func fib(e *expr.Fib) operand {
	field := map[bool]string{true: "saddr", false: "daddr"}[e.FlagSADDR]
	if !e.ResultADDRTYPE || e.FlagIIF || e.FlagOIF {
		return operand{text: "fib …", show: hexadecimal}
	}
	return operand{text: "fib " + field + " type", show: func(b []byte) string {
		if len(b) == 4 && binary.NativeEndian.Uint32(b) == unix.RTN_LOCAL {
			return "local"
		}
		return native(b)
	}}
}

// constant is data that a rule has in it.
func constant(data []byte) operand {
	o := operand{text: hexadecimal(data), show: hexadecimal, data: data}
	if a, ok := netip.AddrFromSlice(data); ok {
		o.text = a.String()
	}
	return o
}

// words shows data by its name.
func words(names map[string]string) func([]byte) string {
	return func(b []byte) string { return cmp.Or(names[string(b)], hexadecimal(b)) }
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
				return native(b)
			}
			list = append(list, names[bit])
		}
		return cmp.Or(strings.Join(list, ","), "0")
	}
}

func hexadecimal(b []byte) string { return fmt.Sprintf("0x%x", b) }

// native and number show a number that the kernel has in the machine's byte order.
func native(b []byte) string { return word("%#x", b) }
func number(b []byte) string { return word("%d", b) }

func word(format string, b []byte) string {
	if len(b) != 4 {
		return hexadecimal(b)
	}
	return fmt.Sprintf(format, binary.NativeEndian.Uint32(b))
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

var protocols = map[byte]string{
	unix.IPPROTO_ICMP: "icmp", unix.IPPROTO_ICMPV6: "ipv6-icmp", unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp",
	unix.IPPROTO_SCTP: "sctp",
}

func protocol(b []byte) string {
	if len(b) == 0 {
		return hexadecimal(b)
	}
	return cmp.Or(protocols[b[0]], strconv.Itoa(int(b[0])))
}

// untracks reports whether a target of iptables keeps a packet from connection tracking.
func untracks(t *expr.Target) bool {
	const notrack = 1 << 0 // XT_CT_NOTRACK in the flags of struct xt_ct_target_info
	info, _ := t.Info.(*xt.Unknown)
	return t.Name == "NOTRACK" ||
		t.Name == "CT" && info != nil && len(*info) >= 2 && binary.NativeEndian.Uint16(*info)&notrack != 0
}

// targetText returns a target of iptables as text; of those that mark a packet, with the options, as iptables-save has
// them.
func targetText(t *expr.Target) string {
	// The revisions of struct xt_mark_tginfo2, xt_connmark_tginfo1 and xt_connmark_tginfo2; where the last two have
	// the mode.
	const mark, connmark, shifted, size, mode, shiftedMode = 2, 1, 2, 8, 12, 14
	text := fmt.Sprintf("xt target %q", t.Name)
	info, ok := t.Info.(*xt.Unknown)
	at := map[uint32]int{connmark: mode, shifted: shiftedMode}[t.Rev]
	switch {
	case untracks(t):
		return text + " --notrack"
	case !ok || len(*info) < size:
	case t.Name == "CONNMARK" && at > 0 && len(*info) > at && (*info)[at] == 1:
		return text + " --save-mark"
	case t.Name == "CONNMARK" && at > 0 && len(*info) > at && (*info)[at] == 2:
		return text + " --restore-mark"
	case t.Name == "CONNMARK" && at > 0, t.Name == "MARK" && t.Rev == mark:
		return fmt.Sprintf("%s --set-xmark %s/%s", text, native((*info)[:4]), native((*info)[4:8]))
	}
	return text
}
