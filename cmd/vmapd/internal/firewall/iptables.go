package firewall

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/legacy/xtables"
	"github.com/vmapd/vmapd/model"
)

// xtMatch returns the conditions of a match of iptables, as the kernel has it (struct xt_…). A match
// that is not known here may hold or not.
func xtMatch(name string, revision uint32, info []byte) []Cond {
	var conds []Cond
	ok := false
	switch name {
	case "comment":
		return nil
	case "tcp":
		conds, ok = matchTCP(info)
	case "udp":
		conds, ok = matchUDP(info)
	case "multiport":
		conds, ok = matchMultiport(revision, info)
	case "conntrack":
		conds, ok = matchConntrack(revision, info)
	case "state":
		conds, ok = matchState(info)
	case "addrtype":
		conds, ok = matchAddrType(revision, info)
	case "mark":
		conds, ok = matchMark(revision, info)
	}
	if !ok {
		return []Cond{unknown}
	}
	return conds
}

// xtTarget sets what a target of iptables does.
func (r *Rule) xtTarget(name string, info []byte) {
	const notrack = 1 << 0 // XT_CT_NOTRACK in the flags of struct xt_ct_target_info
	r.Marks = name == "MARK" || name == "CONNMARK"
	r.Untracks = name == "NOTRACK" || name == "CT" && len(info) >= 2 && binary.NativeEndian.Uint16(info)&notrack != 0
	switch name {
	case "REJECT":
		r.Verdict = Drop
	case "DNAT", "SNAT", "MASQUERADE", "REDIRECT", "NETMAP":
		r.Verdict = Accept
	case "MARK", "CONNMARK", "LOG", "NFLOG", "TCPMSS", "CT", "NOTRACK", "CLASSIFY", "DSCP", "TOS", "SECMARK",
		"CONNSECMARK", "SET", "CHECKSUM", "TRACE", "AUDIT", "TTL", "HL", "TEE", "LED", "IDLETIMER", "RATEEST":
		r.Verdict = Continue
	default:
		r.Verdict = Unsure
	}
}

// Offsets in the header of layer 4.
const (
	sourcePort, destPort = 0, 2
	portSize             = 2
	tcpFlags             = 13
)

// ports returns a condition on a port. A range of all ports is none.
func ports(offset int, ranges [][2]uint16, not bool) []Cond {
	const last = 0xffff
	if len(ranges) == 1 && ranges[0] == [2]uint16{0, last} && !not {
		return nil
	}
	c := Cond{Field: Field{Kind: Transport, Offset: offset, Len: portSize}, Not: not}
	for _, r := range ranges {
		c.Ranges = append(c.Ranges, [2][]byte{binary.BigEndian.AppendUint16(nil, r[0]), binary.BigEndian.AppendUint16(nil, r[1])})
	}
	return []Cond{c}
}

func uint16s(b []byte, n int) []uint16 {
	list := make([]uint16, n)
	for i := range list {
		list[i] = binary.NativeEndian.Uint16(b[2*i:])
	}
	return list
}

// matchTCP reads struct xt_tcp.
func matchTCP(b []byte) ([]Cond, bool) {
	const size, option, mask, compared, inverted = 12, 8, 9, 10, 11
	const notSource, notDest, notFlags = 1, 2, 4
	if len(b) < size {
		return nil, false
	}
	p, not := uint16s(b, 4), b[inverted]
	conds := append(ports(sourcePort, [][2]uint16{{p[0], p[1]}}, not&notSource != 0), ports(destPort, [][2]uint16{{p[2], p[3]}}, not&notDest != 0)...)
	if b[mask] != 0 {
		conds = append(conds, Cond{
			Field: Field{Kind: Transport, Offset: tcpFlags, Len: 1}, Mask: []byte{b[mask]},
			Ranges: [][2][]byte{{{b[compared]}, {b[compared]}}}, Not: not&notFlags != 0,
		})
	}
	if b[option] != 0 {
		conds = append(conds, unknown)
	}
	return conds, true
}

// matchUDP reads struct xt_udp.
func matchUDP(b []byte) ([]Cond, bool) {
	const size, inverted = 9, 8
	const notSource, notDest = 1, 2
	if len(b) < size {
		return nil, false
	}
	p, not := uint16s(b, 4), b[inverted]
	return append(ports(sourcePort, [][2]uint16{{p[0], p[1]}}, not&notSource != 0), ports(destPort, [][2]uint16{{p[2], p[3]}}, not&notDest != 0)...), true
}

// matchMultiport reads struct xt_multiport_v1.
func matchMultiport(revision uint32, b []byte) ([]Cond, bool) {
	const size, count, first, flags, inverted = 48, 1, 2, 32, 47
	const source, dest = 0, 1
	const most = 15
	if revision != 1 || len(b) < size || b[0] > dest || b[count] > most {
		return nil, false
	}
	list := uint16s(b[first:], int(b[count]))
	var ranges [][2]uint16
	for i := 0; i < len(list); i++ {
		r := [2]uint16{list[i], list[i]}
		if b[flags+i] != 0 && i+1 < len(list) {
			i++
			r[1] = list[i]
		}
		ranges = append(ranges, r)
	}
	offset := destPort
	if b[0] == source {
		offset = sourcePort
	}
	return ports(offset, ranges, b[inverted] != 0), true
}

// matchConntrack reads struct xt_conntrack_mtinfo1 to 3.
func matchConntrack(revision uint32, b []byte) ([]Cond, bool) {
	const size, origDst, origDstMask, origDstPort, flagsAt, invertedAt, stateAt, lastPort = 152, 32, 48, 140, 146, 148, 150, 156
	const state, toDst, toPort, alias = 1 << 0, 1 << 3, 1 << 9, 1 << 13
	const rev1, rev3 = 1, 3
	if revision < rev1 || revision > rev3 || len(b) < size {
		return nil, false
	}
	flags, inverted := binary.NativeEndian.Uint16(b[flagsAt:]), binary.NativeEndian.Uint16(b[invertedAt:])
	var conds []Cond
	if flags&state != 0 {
		mask := binary.NativeEndian.Uint16(b[stateAt:])
		if revision == rev1 {
			mask = uint16(b[stateAt])
		}
		conds = append(conds, inState(mask, inverted&state != 0))
	}
	if flags&toPort != 0 {
		from := binary.BigEndian.Uint16(b[origDstPort:]) // of before revision 3
		to := from
		if revision == rev3 && len(b) >= lastPort+portSize {
			from = binary.NativeEndian.Uint16(b[origDstPort:])
			to = max(from, binary.NativeEndian.Uint16(b[lastPort:]))
		}
		conds = append(conds, Cond{
			Field: Field{Kind: CtOrigDstPort}, Not: inverted&toPort != 0,
			Ranges: [][2][]byte{{binary.BigEndian.AppendUint16(nil, from), binary.BigEndian.AppendUint16(nil, to)}},
		})
	}
	if flags&toDst != 0 {
		value, mask := bytes.Clone(b[origDst:origDst+16]), bytes.Clone(b[origDstMask:origDstMask+16])
		conds = append(conds, Cond{Field: Field{Kind: CtOrigDst}, Mask: mask, Ranges: [][2][]byte{{value, value}}, Not: inverted&toDst != 0})
	}
	if flags&^(state|toDst|toPort|alias) != 0 {
		conds = append(conds, unknown)
	}
	return conds, true
}

// inState returns the condition that the state has a bit of the mask.
func inState(mask uint16, not bool) Cond {
	zero := []byte{0, 0}
	return Cond{Field: Field{Kind: CtStateXT}, Mask: binary.NativeEndian.AppendUint16(nil, mask), Ranges: [][2][]byte{{zero, zero}}, Not: !not}
}

// matchState reads struct xt_state_info.
func matchState(b []byte) ([]Cond, bool) {
	if len(b) < 4 {
		return nil, false
	}
	return []Cond{inState(uint16(binary.NativeEndian.Uint32(b)), false)}, true
}

// matchAddrType reads struct xt_addrtype_info_v1, as far as it is about the destination being one of the
// node's addresses.
func matchAddrType(revision uint32, b []byte) ([]Cond, bool) {
	const size, dest, flagsAt, notDest = 8, 2, 4, 2
	if revision != 1 || len(b) < size {
		return nil, false
	}
	flags := binary.NativeEndian.Uint32(b[flagsAt:])
	if binary.NativeEndian.Uint16(b) != 0 || binary.NativeEndian.Uint16(b[dest:]) != 1<<rtnLocal || flags&^uint32(notDest) != 0 {
		return nil, false
	}
	c := equals(Field{Kind: DestType}, binary.NativeEndian.AppendUint32(nil, rtnLocal))
	c.Not = flags&notDest != 0
	return []Cond{c}, true
}

// matchMark reads struct xt_mark_mtinfo1.
func matchMark(revision uint32, b []byte) ([]Cond, bool) {
	const size, mask, inverted = 9, 4, 8
	if revision != 1 || len(b) < size {
		return nil, false
	}
	value := bytes.Clone(b[:mask])
	return []Cond{{Field: Field{Kind: Mark}, Mask: bytes.Clone(b[mask:inverted]), Ranges: [][2][]byte{{value, value}}, Not: b[inverted] != 0}}, true
}

// Hooks of the tables of iptables, by their numbers, and the priorities of tables.
var (
	legacyHooks      = [...]Hook{Prerouting, Input, Forward, Output, Postrouting}
	legacyNames      = [...]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}
	legacyPriorities = map[string]int{"raw": -300, "mangle": -150, "filter": 0, "security": 50}
	legacyFamilies   = map[model.Family]string{model.IPv4: "ip", model.IPv6: "ip6"}
)

// FromXTables returns a table of iptables-legacy. The table nat drops nothing, and has no base chains
// here.
func FromXTables(t *xtables.Table) (Ruleset, error) {
	table := cString(t.Name[:])
	out := Ruleset{By: "iptables-legacy", Family: legacyFamilies[t.Family], Table: table, Chains: map[string]*Chain{}}
	entries, err := t.Read()
	if err != nil {
		return out, fmt.Errorf("table %s of iptables-legacy: %w", table, err)
	}
	names := map[int]string{} // by the offset of the first rule
	var current *Chain
	for _, e := range entries {
		if e.Chain != "" {
			names[e.End] = e.Chain
		}
	}
	for _, e := range entries {
		hook := slices.Index(t.HookEntry[:], uint32(e.Offset))
		switch {
		case e.Chain != "":
			current = &Chain{Name: e.Chain}
			out.Chains[e.Chain] = current
			continue
		case hook >= 0 && t.ValidHooks&(1<<hook) != 0:
			current = &Chain{Name: legacyNames[hook]}
			if priority, ok := legacyPriorities[table]; ok {
				current.Hook, current.Priority = legacyHooks[hook], priority
			}
			out.Chains[current.Name] = current
		}
		if current == nil {
			continue
		}
		rule := legacyRule(t.Family, e, names)
		if slices.Contains(t.Underflow[:], uint32(e.Offset)) && len(rule.Conds) == 0 && current.Hook != "" {
			current.Drops = rule.Verdict == Drop
			continue
		}
		rule.Number = len(current.Rules) + 1
		current.Rules = append(current.Rules, rule)
	}
	return out, nil
}

func legacyRule(f model.Family, e xtables.Entry, names map[int]string) Rule {
	r := Rule{Conds: legacyHead(f, e.Head)}
	for _, m := range e.Matches {
		r.Conds = append(r.Conds, xtMatch(m.Name, uint32(m.Revision), m.Data)...)
	}
	if e.Target.Name != "" {
		r.xtTarget(e.Target.Name, e.Target.Data)
		return r
	}
	const accept, drop, returns = -2, -1, -5
	switch e.Verdict {
	case accept:
		r.Verdict = Accept
	case drop:
		r.Verdict = Drop
	case returns:
		r.Verdict = Return
	default:
		r.Verdict = Unsure
		if name, ok := names[e.Verdict]; ok && e.Verdict >= 0 {
			r.Verdict, r.Target = Jump, name
			if e.Goto {
				r.Verdict = Goto
			}
		} else if e.Verdict == e.End {
			r.Verdict = Continue // a rule without a target
		}
	}
	return r
}

// legacyHead reads struct ipt_ip or ip6t_ip6: addresses, interfaces and the protocol.
func legacyHead(f model.Family, b []byte) []Cond {
	const notIn, notOut, notSrc, notDst, notProto = 0x01, 0x02, 0x08, 0x10, 0x40
	addr, protoAt, invertedAt := 4, 80, 83
	src, dst := 12, 16
	if f == model.IPv6 {
		addr, protoAt, invertedAt = 16, 128, 132
		src, dst = 8, 24
	}
	not := b[invertedAt]
	var conds []Cond
	add := func(field Field, value, mask []byte, inverted bool) {
		if len(bytes.Trim(mask, "\x00")) == 0 {
			return
		}
		value = bytes.Clone(value)
		conds = append(conds, Cond{Field: field, Mask: bytes.Clone(mask), Ranges: [][2][]byte{{value, value}}, Not: inverted})
	}
	const name = interfaceSize
	in := 4 * addr
	add(Field{Network, src, addr}, b[:addr], b[2*addr:3*addr], not&notSrc != 0)
	add(Field{Network, dst, addr}, b[addr:2*addr], b[3*addr:4*addr], not&notDst != 0)
	add(Field{Kind: InInterface}, b[in:in+name], b[in+2*name:in+3*name], not&notIn != 0)
	add(Field{Kind: OutInterface}, b[in+name:in+2*name], b[in+3*name:in+4*name], not&notOut != 0)
	if proto := binary.NativeEndian.Uint16(b[protoAt:]); proto != 0 && proto < unix.IPPROTO_RAW {
		c := equals(Field{Kind: Protocol}, []byte{byte(proto)})
		c.Not = not&notProto != 0
		conds = append(conds, c)
	}
	return conds
}
