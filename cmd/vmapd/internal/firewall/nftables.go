package firewall

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Set has the elements of a set of others, or is nil if they are not known. Of a verdict map, each
// range has a verdict.
type Set struct {
	Ranges   [][2][]byte
	Verdicts []SetVerdict // nil unless the set is a verdict map
}

// SetVerdict is a verdict of a map's element.
type SetVerdict struct {
	Verdict Verdict
	Target  string
}

// Names are what the decoding of rules looks up.
type Names struct {
	// Set returns a set, or nil if its elements are not known.
	Set func(name string) *Set
	// Interface returns the name of an interface; "" is not known.
	Interface func(index uint32) string
}

// fits reports whether keys are as long as a field. Those of a concatenation are longer than the field
// that was loaded first.
func (s *Set) fits(f Field) bool {
	sizes := map[Kind]int{
		InInterface: interfaceSize, OutInterface: interfaceSize, Protocol: 1, NFProto: 1, EtherType: 2, CtState: 4, CtStatus: 4, CtOrigDstPort: 2,
		Mark: 4, DestType: 4, inIndex: 4, outIndex: 4,
	}
	size, ok := sizes[f.Kind]
	if f.Kind == Network || f.Kind == Transport {
		size, ok = f.Len, true
	}
	for _, r := range s.Ranges {
		if !ok || len(r[0]) != size || len(r[1]) != size {
			return false
		}
	}
	return true
}

// decoder turns the expressions of one rule into conditions.
type decoder struct {
	names     Names
	registers map[uint32]Cond // what a register was loaded with, without values
	rule      Rule
	more      []Rule // of a verdict map, but for the last
}

// Decode returns the rules that expressions of nf_tables (NFTA_RULE_EXPRESSIONS) stand for: one or, of a
// verdict map, one for each element.
func Decode(number int, expressions []byte, names Names) []Rule {
	d := &decoder{names: names, registers: map[uint32]Cond{}, rule: Rule{Number: number}}
	eachAttribute(expressions, func(kind uint16, data []byte) {
		if kind != unix.NFTA_LIST_ELEM {
			return
		}
		name, content := "", []byte(nil)
		eachAttribute(data, func(kind uint16, data []byte) {
			switch kind {
			case unix.NFTA_EXPR_NAME:
				name = cString(data)
			case unix.NFTA_EXPR_DATA:
				content = data
			}
		})
		d.expression(name, content)
	})
	return append(d.more, d.rule)
}

func eachAttribute(b []byte, each func(kind uint16, data []byte)) {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return
	}
	for ad.Next() {
		each(ad.Type(), ad.Bytes())
	}
}

func cString(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}

var unknown = Cond{Field: Field{Kind: Other}}

func (d *decoder) require(c Cond) { d.rule.Conds = append(d.rule.Conds, c) }

// read reads the content of an expression. Where that fails, the rule may match or not.
func read[E any, P interface {
	*E
	expr.Any
}](d *decoder, data []byte, use func(e *E)) {
	e := P(new(E))
	if err := expr.Unmarshal(unix.NFPROTO_INET, data, e); err != nil {
		d.require(unknown)
		return
	}
	use((*E)(e))
}

func (d *decoder) expression(name string, data []byte) {
	switch name {
	case "counter", "log", "last", "objref", "ct_helper":
	case "notrack":
		d.rule.Untracks = true
	case "meta":
		read(d, data, d.meta)
	case "payload":
		read(d, data, d.payload)
	case "ct":
		read(d, data, d.ct)
	case "fib":
		read(d, data, d.fib)
	case "bitwise":
		read(d, data, d.bitwise)
	case "cmp":
		read(d, data, d.compare)
	case "range":
		read(d, data, d.inRange)
	case "lookup":
		read(d, data, d.lookup)
	case "immediate":
		d.immediate(data)
	case "match":
		d.match(data)
	case "target":
		d.target(data)
	case "reject":
		d.rule.Verdict = Drop
	case "nat", "masq", "redir":
		d.rule.Verdict = Accept
	case "queue", "tproxy", "synproxy":
		d.rule.Verdict = Unsure
	default: // such as limit, quota and dynset, or a register that nothing here knows
		d.registers = map[uint32]Cond{}
		d.require(unknown)
	}
}

func (d *decoder) load(register uint32, f Field) { d.registers[register] = Cond{Field: f} }

// loaded returns what a register has.
func (d *decoder) loaded(register uint32) Cond {
	if c, ok := d.registers[register]; ok {
		return c
	}
	return unknown
}

// index is the kind of a register with the index of an interface, whose name is in the condition.
const (
	inIndex  = Other + 1
	outIndex = Other + 2
)

func (d *decoder) meta(e *expr.Meta) {
	if e.SourceRegister {
		d.rule.Marks = d.rule.Marks || e.Key == expr.MetaKeyMARK
		return
	}
	kinds := map[expr.MetaKey]Kind{
		expr.MetaKeyIIFNAME: InInterface, expr.MetaKeyOIFNAME: OutInterface, expr.MetaKeyL4PROTO: Protocol, expr.MetaKeyNFPROTO: NFProto,
		expr.MetaKeyPROTOCOL: EtherType, expr.MetaKeyMARK: Mark, expr.MetaKeyIIF: inIndex, expr.MetaKeyOIF: outIndex,
	}
	kind, ok := kinds[e.Key]
	if !ok {
		kind = Other
	}
	d.load(e.Register, Field{Kind: kind})
}

func (d *decoder) payload(e *expr.Payload) {
	if e.OperationType == expr.PayloadWrite {
		return
	}
	kind := Other
	switch e.Base {
	case expr.PayloadBaseNetworkHeader:
		kind = Network
	case expr.PayloadBaseTransportHeader:
		kind = Transport
	case expr.PayloadBaseLLHeader:
	}
	d.load(e.DestRegister, Field{Kind: kind, Offset: int(e.Offset), Len: int(e.Len)})
}

func (d *decoder) ct(e *expr.Ct) {
	if e.SourceRegister {
		return
	}
	kind := Other
	switch e.Key { //nolint:exhaustive // The rest is not known of a packet.
	case expr.CtKeySTATE:
		kind = CtState
	case expr.CtKeySTATUS:
		kind = CtStatus
	case expr.CtKeyDST, expr.CtKeyDSTIP, expr.CtKeyDSTIP6:
		kind = CtOrigDst
	case expr.CtKeyPROTODST:
		kind = CtOrigDstPort
	}
	if e.Direction != expr.CtDirOriginal {
		kind = Other
	}
	d.load(e.Register, Field{Kind: kind})
}

func (d *decoder) fib(e *expr.Fib) {
	kind := Other
	if e.ResultADDRTYPE && e.FlagDADDR && !e.FlagIIF && !e.FlagOIF && !e.FlagMARK {
		kind = DestType
	}
	d.load(e.Register, Field{Kind: kind})
}

func (d *decoder) bitwise(e *expr.Bitwise) {
	c := d.loaded(e.SourceRegister)
	if len(e.Mask) == 0 || len(bytes.Trim(e.Xor, "\x00")) > 0 || c.Mask != nil {
		c = unknown
	}
	c.Mask = bytes.Clone(e.Mask)
	d.registers[e.DestRegister] = c
}

func (d *decoder) compare(e *expr.Cmp) {
	c, value := d.loaded(e.Register), bytes.Clone(e.Data)
	lowest, highest := make([]byte, len(value)), bytes.Repeat([]byte{0xff}, len(value))
	ordered := c.Kind == Network || c.Kind == Transport || c.Kind == CtOrigDstPort
	switch e.Op {
	case expr.CmpOpEq:
		c.Ranges = [][2][]byte{{value, value}}
	case expr.CmpOpNeq:
		c.Ranges, c.Not = [][2][]byte{{value, value}}, true
	case expr.CmpOpLte:
		c.Ranges = [][2][]byte{{lowest, value}}
	case expr.CmpOpGte:
		c.Ranges = [][2][]byte{{value, highest}}
	case expr.CmpOpGt:
		c.Ranges, c.Not = [][2][]byte{{lowest, value}}, true
	case expr.CmpOpLt:
		c.Ranges, c.Not = [][2][]byte{{value, highest}}, true
	}
	if e.Op != expr.CmpOpEq && e.Op != expr.CmpOpNeq && !ordered {
		c = unknown // the values are in the machine's byte order
	}
	d.require(d.named(c))
}

func (d *decoder) inRange(e *expr.Range) {
	c := d.loaded(e.Register)
	if c.Kind != Network && c.Kind != Transport && c.Kind != CtOrigDstPort {
		c = unknown
	}
	c.Ranges, c.Not = [][2][]byte{{bytes.Clone(e.FromData), bytes.Clone(e.ToData)}}, e.Op == expr.CmpOpNeq
	d.require(c)
}

// named puts names of interfaces in the place of their indexes.
func (d *decoder) named(c Cond) Cond {
	kinds := map[Kind]Kind{inIndex: InInterface, outIndex: OutInterface}
	kind, isIndex := kinds[c.Kind]
	if !isIndex {
		return c
	}
	c.Kind = kind
	for i, r := range c.Ranges {
		name := ""
		if len(r[0]) == 4 && d.names.Interface != nil {
			name = d.names.Interface(binary.NativeEndian.Uint32(r[0]))
		}
		if name == "" {
			return unknown
		}
		value, _ := interfaceName(name)
		c.Ranges[i] = [2][]byte{value, value}
	}
	return c
}

func (d *decoder) lookup(e *expr.Lookup) {
	var set *Set
	if d.names.Set != nil {
		set = d.names.Set(e.SetName)
	}
	c := d.loaded(e.SourceRegister)
	c.Not = e.Invert
	if set != nil && !set.fits(c.Field) {
		set = nil
	}
	toVerdict := e.IsDestRegSet && e.DestRegister == unix.NFT_REG_VERDICT
	switch {
	case toVerdict && (set == nil || set.Verdicts == nil):
		d.rule.Verdict = Unsure
	case toVerdict:
		for i, r := range set.Ranges {
			rule := d.rule
			c.Ranges = [][2][]byte{r}
			rule.Conds = append(slices.Clip(rule.Conds), d.named(c))
			rule.Verdict, rule.Target = set.Verdicts[i].Verdict, set.Verdicts[i].Target
			d.more = append(d.more, rule)
		}
	case e.IsDestRegSet: // a value from a map
		d.registers[e.DestRegister] = unknown
		d.require(unknown)
	case set == nil:
		d.require(unknown)
	default:
		c.Ranges = set.Ranges
		d.require(d.named(c))
	}
}

func (d *decoder) immediate(data []byte) {
	eachAttribute(data, func(kind uint16, data []byte) {
		if kind != unix.NFTA_IMMEDIATE_DATA {
			return
		}
		eachAttribute(data, func(kind uint16, data []byte) {
			if kind == unix.NFTA_DATA_VERDICT {
				d.rule.Verdict, d.rule.Target = DecodeVerdict(data)
			}
		})
	})
}

// DecodeVerdict reads a verdict of nf_tables (NFTA_DATA_VERDICT).
func DecodeVerdict(data []byte) (v Verdict, chain string) {
	eachAttribute(data, func(kind uint16, data []byte) {
		switch {
		case kind == unix.NFTA_VERDICT_CHAIN:
			chain = cString(data)
		case kind == unix.NFTA_VERDICT_CODE && len(data) == 4:
			v = verdictOf(int32(binary.BigEndian.Uint32(data)))
		}
	})
	return v, chain
}

func verdictOf(code int32) Verdict {
	const drop, accept = 0, 1
	switch code {
	case drop:
		return Drop
	case accept:
		return Accept
	case unix.NFT_RETURN:
		return Return
	case unix.NFT_JUMP:
		return Jump
	case unix.NFT_GOTO:
		return Goto
	case unix.NFT_CONTINUE, unix.NFT_BREAK:
		return Continue
	}
	return Unsure
}

// match reads a match of iptables.
func (d *decoder) match(data []byte) {
	name, revision, info := extension(data)
	d.rule.Conds = append(d.rule.Conds, xtMatch(name, revision, info)...)
}

// target reads a target of iptables.
func (d *decoder) target(data []byte) {
	name, _, info := extension(data)
	d.rule.xtTarget(name, info)
}

// extension reads a match or a target: their attributes have the same numbers.
func extension(data []byte) (name string, revision uint32, info []byte) {
	eachAttribute(data, func(kind uint16, data []byte) {
		switch {
		case kind == unix.NFTA_MATCH_NAME:
			name = cString(data)
		case kind == unix.NFTA_MATCH_REV && len(data) == 4:
			revision = binary.BigEndian.Uint32(data)
		case kind == unix.NFTA_MATCH_INFO:
			info = data
		}
	})
	return name, revision, info
}
