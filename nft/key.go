package nft

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// RegisterSize is the size of a register: in a concatenation each component is padded to 4 bytes, as in the kernel's
// registers. Addresses and ports are in network byte order, and slots in the host's, in which numgen yields them
// (nf_tables: struct nft_regs, NFT_REG32_SIZE).
const RegisterSize = 4

// AppendAddr appends an address.
func AppendAddr(b []byte, a netip.Addr) []byte {
	b, _ = a.AppendBinary(b) // never fails; an address with a zone, which is refused, would be longer
	return b
}

// AppendProto appends a protocol.
func AppendProto(b []byte, p model.Protocol) []byte { return append(b, byte(p), 0, 0, 0) }

// AppendPort appends a port.
func AppendPort(b []byte, port uint16) []byte { return append(b, byte(port>>8), byte(port), 0, 0) }

// AppendSlot appends a slot.
func AppendSlot(b []byte, slot uint32) []byte { return binary.NativeEndian.AppendUint32(b, slot) }

// Width returns how many bytes a component takes.
func (t Type) Width(f model.Family) int {
	if t == Addr {
		return [...]int{model.IPv4: 4, model.IPv6: 16}[f]
	}
	return RegisterSize
}

// Width returns how many bytes components take together.
func Width(f model.Family, types []Type) int {
	n := 0
	for _, t := range types {
		n += t.Width(f)
	}
	return n
}

// text returns components as nft writes them.
func text(f model.Family, types []Type, raw string) string {
	words := make([]string, len(types))
	for i, t := range types {
		width := t.Width(f)
		if len(raw) < width {
			words[i], raw = "?", ""
			continue
		}
		switch t {
		case Addr:
			words[i] = decodeAddr(raw[:width]).String()
		case Proto:
			words[i] = model.Protocol(raw[0]).String()
		case Service:
			words[i] = fmt.Sprint(binary.BigEndian.Uint16([]byte(raw)))
		case Slot:
			words[i] = fmt.Sprint(decodeSlot(raw))
		}
		raw = raw[width:]
	}
	return strings.Join(words, " . ")
}

func decodeAddr(raw string) netip.Addr {
	a, _ := netip.AddrFromSlice([]byte(raw))
	return a
}

func decodeSlot(raw string) uint32 { return binary.NativeEndian.Uint32([]byte(raw[:RegisterSize])) }

// Text returns an element as nft writes it.
func (s Set) Text(f model.Family, e Element) string {
	words := text(f, s.Key, e.Key)
	if s.Interval {
		words = s.rangeText(f, e)
	}
	if s.Counter {
		words += " counter" // before Linux 5.11 the counter of the set does not suffice
	}
	if e.Comment != "" {
		words += ` comment "` + e.Comment + `"`
	}
	switch {
	case s.Verdicts:
		words += " : " + e.Verdict.String()
	case s.Data != nil:
		words += " : " + text(f, s.Data, e.Data)
	}
	return words
}

// PrefixElement makes the element of an interval set that covers a prefix.
func PrefixElement(p netip.Prefix) Element {
	first := p.Masked().Addr()
	e := Element{Key: string(AppendAddr(nil, first))}
	if last := lastAddr(p).Next(); last.IsValid() {
		e.End = string(AppendAddr(nil, last))
	}
	return e
}

// RangeElement returns the element of SourceRanges for the sources that may connect to a frontend.
func RangeElement(v model.VIP, p netip.Prefix) Element {
	key := func(source netip.Addr) string {
		return string(AppendAddr(AppendPort(AppendAddr(nil, v.Addr), v.Port), source))
	}
	return Element{Key: key(p.Masked().Addr()), End: key(lastAddr(p))}
}

func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// rangeText is the key of an interval set: the range itself as a prefix, if it is one.
func (s Set) rangeText(f model.Family, e Element) string {
	n := len(s.Key) - 1
	begin := Width(f, s.Key[:n])
	if len(e.Key) != begin+Addr.Width(f) {
		return "?"
	}
	before := ""
	if n > 0 {
		before = text(f, s.Key[:n], e.Key) + " . "
	}
	first := decodeAddr(e.Key[begin:])
	last := lastAddr(netip.PrefixFrom(first, 0))
	switch {
	case n > 0 && len(e.End) == len(e.Key):
		last = decodeAddr(e.End[begin:])
	case e.End != "":
		last = decodeAddr(e.End).Prev()
	}
	for bits := range first.BitLen() + 1 {
		if p := netip.PrefixFrom(first, bits); p.Masked() == p && lastAddr(p) == last {
			return before + p.String()
		}
	}
	return before + first.String() + "-" + last.String()
}
