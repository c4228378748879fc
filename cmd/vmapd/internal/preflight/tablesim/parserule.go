package tablesim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// readRule reads a rule, up to the end of its line.
func (p *parser) readRule() (Rule, error) {
	from := p.at
	var rule Rule
	for !p.done() && p.peek() != "\n" && p.peek() != "}" {
		list, err := p.readStatement()
		if err != nil {
			at := p.at
			p.at = from
			p.newline()
			return nil, fmt.Errorf("%s: %w", strings.Join(p.words[from:min(max(at, p.at), len(p.words))], " "), err)
		}
		rule = append(rule, list...)
	}
	return rule, nil
}

// readStatement reads one statement, which may be two of ours, or none.
func (p *parser) readStatement() ([]Statement, error) {
	switch {
	case p.take("comment"):
		p.next()
		return nil, nil
	case p.take("counter"):
		if p.take("packets") {
			p.at += 3 // N bytes N
		}
		return nil, nil
	case p.take("update"), p.take("add"): // session affinity: it does not change the packet's way
		if name := strings.TrimPrefix(p.next(), "@"); p.table.Sets[name] == nil {
			return nil, fmt.Errorf("no set %s", name)
		}
		if err := p.expect("{"); err != nil {
			return nil, err
		}
		p.skip()
		return nil, nil
	case p.take("masquerade"):
		p.takeAll("random", "fully-random", "persistent", ",")
		return []Statement{Masquerade{}}, nil
	case p.take("reject"):
		return p.readReject()
	case p.take("dnat"):
		return p.readDNAT()
	case p.take("meta", "mark", "set"), p.take("mark", "set"):
		return p.readSetMark()
	}
	if v, ok, err := p.readVerdict(); ok || err != nil {
		return []Statement{v}, err
	}
	return p.readMatch()
}

func (p *parser) readReject() ([]Statement, error) {
	if !p.take("with") {
		return []Statement{Reject{}}, nil
	}
	if p.take("tcp", "reset") {
		return []Statement{Reject{TCPReset: true}}, nil
	}
	p.at++ // icmp, icmpv6, icmpx
	p.take("type")
	p.at++ // port-unreachable, …
	return []Statement{Reject{}}, nil
}

func (p *parser) readVerdict() (Verdict, bool, error) {
	kind := map[string]VerdictKind{"accept": Accept, "drop": Drop, "return": Return, "jump": Jump, "goto": Goto}[p.peek()]
	if kind == NoVerdict {
		return Verdict{}, false, nil
	}
	p.at++
	v := Verdict{Kind: kind}
	if kind == Jump || kind == Goto {
		if v.Chain = strings.Trim(p.next(), `"`); v.Chain == "\n" || v.Chain == "" {
			return v, false, errors.New("a verdict has no chain")
		}
	}
	return v, true, nil
}

// readSetMark reads "meta mark | 0x4000", "meta mark & 0xffffbfff", "meta mark ^ 0x4000" or a
// number.
func (p *parser) readSetMark() ([]Statement, error) {
	if n, err := strconv.ParseUint(p.peek(), 0, 32); err == nil {
		p.at++
		return []Statement{SetMark{0, uint32(n)}}, nil
	}
	if !p.take("meta", "mark") && !p.take("mark") {
		return nil, fmt.Errorf("unknown mark %q", p.peek())
	}
	operator := p.next()
	n, err := strconv.ParseUint(p.next(), 0, 32)
	if err != nil {
		return nil, errors.New("a mark is no number")
	}
	mask := uint32(n)
	switch operator {
	case "|", "or":
		return []Statement{SetMark{^mask, mask}}, nil
	case "&", "and":
		return []Statement{SetMark{mask, 0}}, nil
	case "^", "xor":
		return []Statement{SetMark{^uint32(0), mask}}, nil
	}
	return nil, fmt.Errorf("unknown operator %q", operator)
}

// readDNAT reads "dnat to ADDRESS:PORT" or "dnat ip to KEY map {…}".
func (p *parser) readDNAT() ([]Statement, error) {
	_ = p.take("ip") || p.take("ip6")
	p.take("addr", ".", "port")
	if err := p.expect("to"); err != nil {
		return nil, err
	}
	if to, err := netip.ParseAddrPort(p.peek()); err == nil {
		p.at++
		return []Statement{DNAT{To: to}}, nil
	}
	key, _, err := p.readKey()
	if err != nil {
		return nil, err
	}
	if err := p.expect("map"); err != nil {
		return nil, err
	}
	in, err := p.readIn(key)
	return []Statement{DNAT{Key: key, Map: in}}, err
}

// readMatch reads a key and what it is compared with. "tcp dport" also compares the protocol.
func (p *parser) readMatch() ([]Statement, error) {
	key, implied, err := p.readKey()
	if err != nil {
		return nil, err
	}
	switch {
	case p.take("vmap"):
		in, err := p.readIn(key)
		return append(implied, VerdictMap{key, in}), err
	case p.take("&"), p.take("and"):
		mask, _, err := parseValue(key[0].Field.valueType(), p.table.Family, p.next())
		if err != nil {
			return nil, err
		}
		key[0].Mask = mask
	}
	m := Match{Key: key}
	m.Not = p.take("!=")
	p.take("==")
	// A bit is set: "ct state new" is "ct state & new != 0".
	if f := key[0].Field; key[0].Mask == nil && (f == State || f == Status) && p.peek() != "@" && p.peek() != "{" {
		bits := make([]byte, 4)
		for {
			b, _, err := parseValue(f.valueType(), p.table.Family, p.next())
			if err != nil {
				return nil, err
			}
			for i := range bits {
				bits[i] |= b[i]
			}
			if !p.take(",") {
				break
			}
		}
		key[0].Mask, m.Not = bits, !m.Not
		m.In = &Set{Elements: []Element{{From: [][]byte{number(0)}}}}
		return append(implied, m), nil
	}
	m.In, err = p.readIn(key)
	return append(implied, m), err
}

// readIn reads "@NAME", "{ … }" or a single value.
func (p *parser) readIn(key Key) (*Set, error) {
	if name, ok := strings.CutPrefix(p.peek(), "@"); ok {
		p.at++
		s := p.table.Sets[name]
		if s == nil {
			return nil, fmt.Errorf("no set %s", name)
		}
		return s, nil
	}
	types := make([]valueType, len(key))
	for i, e := range key {
		types[i] = e.Field.valueType()
	}
	if p.take("{") {
		list, err := p.readElements(types)
		return &Set{Elements: list}, err
	}
	e, err := p.readValues(types)
	return &Set{Elements: []Element{e}}, err
}

// readElements reads elements up to the closing brace.
func (p *parser) readElements(types []valueType) ([]Element, error) {
	var list []Element
	for {
		p.takeAll("\n", ",")
		if p.take("}") {
			return list, nil
		}
		e, err := p.readElement(types)
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
}

// readElement reads "KEY", "KEY : VERDICT" or "KEY : ADDRESS . PORT", with options of the element.
func (p *parser) readElement(types []valueType) (Element, error) {
	e, err := p.readValues(types)
	if err != nil {
		return e, err
	}
	for {
		switch w := p.peek(); w {
		case "comment":
			p.at++
			e.Comment = strings.Trim(p.next(), `"`)
			continue
		case "timeout", "expires":
			p.at += 2
			continue
		case "counter":
			p.at += 5 // packets N bytes N
			continue
		case ":":
			p.at++
			if e.Verdict, _, err = p.readVerdict(); err != nil || e.Verdict.Kind != NoVerdict {
				return e, err
			}
			e.Data, err = p.readDestination()
			return e, err
		case ",", "}", "\n":
			return e, nil
		default:
			return e, fmt.Errorf("unknown word %q in an element", w)
		}
	}
}

// readDestination reads "ADDRESS . PORT".
func (p *parser) readDestination() (netip.AddrPort, error) {
	a, err := netip.ParseAddr(p.next())
	if err != nil {
		return netip.AddrPort{}, err
	}
	if err := p.expect("."); err != nil {
		return netip.AddrPort{}, err
	}
	port, err := parseNumber(portType, p.next())
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(port)), nil
}

// readValues reads the components of a key.
func (p *parser) readValues(types []valueType) (Element, error) {
	var e Element
	ranges := false
	var to [][]byte
	for i, t := range types {
		if i > 0 {
			if err := p.expect("."); err != nil {
				return e, err
			}
		}
		first, last, err := parseValue(t, p.table.Family, p.next())
		if err != nil {
			return e, err
		}
		e.From = append(e.From, first)
		if last == nil {
			last = first
		} else {
			ranges = true
		}
		to = append(to, last)
	}
	if ranges {
		e.To = to
	}
	return e, nil
}

// readKey reads fields with dots between them, and the matches that they imply.
func (p *parser) readKey() (key Key, implied []Statement, err error) {
	for {
		e, also, err := p.readField()
		if err != nil {
			return nil, nil, err
		}
		key, implied = append(key, e), append(implied, also...)
		if !p.take(".") {
			return key, implied, nil
		}
	}
}

func (p *parser) readField() (Expr, []Statement, error) {
	own := map[model.Family]string{model.IPv4: "ip", model.IPv6: "ip6"}[p.table.Family]
	switch {
	case p.take(own, "saddr"):
		return Expr{Field: SourceAddr}, nil, nil
	case p.take(own, "daddr"):
		return Expr{Field: DestAddr}, nil, nil
	case p.take("meta", "l4proto"), p.take(own, "protocol"), p.take(own, "nexthdr"):
		return Expr{Field: Protocol}, nil, nil
	case p.take("th", "dport"):
		return Expr{Field: DestPort}, nil, nil
	case p.take("th", "sport"):
		return Expr{Field: SourcePort}, nil, nil
	case p.take("meta", "mark"), p.take("mark"):
		return Expr{Field: Mark}, nil, nil
	case p.take("ct", "state"):
		return Expr{Field: State}, nil, nil
	case p.take("ct", "status"):
		return Expr{Field: Status}, nil, nil
	case p.take("meta", "iifname"), p.take("iifname"):
		return Expr{Field: Interface}, nil, nil
	case p.take("fib", "saddr", "type"):
		return Expr{Field: SourceLocal}, nil, nil
	case p.take("fib", "daddr", "type"):
		return Expr{Field: DestLocal}, nil, nil
	case p.take("numgen", "random", "mod"):
		n, err := parseNumber(numberType, p.next())
		if err != nil {
			return Expr{}, nil, err
		}
		return Expr{Field: Random, Mod: binary.BigEndian.Uint32(n)}, nil, nil
	}
	for name, protocol := range map[string]model.Protocol{"tcp": model.TCP, "udp": model.UDP, "sctp": model.SCTP} {
		is := Match{Key: Key{{Field: Protocol}}, In: &Set{Elements: []Element{{From: [][]byte{{byte(protocol)}}}}}}
		if p.take(name, "dport") {
			return Expr{Field: DestPort}, []Statement{is}, nil
		}
		if p.take(name, "sport") {
			return Expr{Field: SourcePort}, []Statement{is}, nil
		}
	}
	return Expr{}, nil, fmt.Errorf("unknown word %q", p.peek())
}
