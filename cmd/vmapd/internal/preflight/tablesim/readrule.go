package tablesim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// registers follow what the expressions of a rule have loaded, and make statements of it.
type registers struct {
	reader *foreignReader
	rule   Rule
	loaded map[int]loaded // by the 32-bit register where the value begins
}

// loaded is the content of one or more registers.
type loaded struct {
	field *Expr
	and   uint32 // of a mark
	xor   uint32
	data  []byte // a constant
	key   Key    // with in: what a map has for the key
	in    *Set   // a map
}

// index returns the number of a 32-bit register: four of them are one of the old 128-bit ones.
func index(register uint32) int {
	if register <= unix.NFT_REG_4 {
		return int(register-unix.NFT_REG_1) * 4
	}
	return int(register - unix.NFT_REG32_00)
}

func (x *registers) set(register uint32, v loaded) {
	if x.loaded == nil {
		x.loaded = map[int]loaded{}
	}
	x.loaded[index(register)] = v
}

func (x *registers) load(register uint32, e Expr) {
	x.set(register, loaded{field: &e, and: ^uint32(0)})
}

// add follows one expression.
func (x *registers) add(e expr.Any) error {
	switch e := e.(type) {
	case *expr.Counter, *expr.Log, *expr.Dynset:
		return nil // session affinity and statistics do not change the packet's way
	case *expr.Payload:
		return x.payload(e)
	case *expr.Meta:
		return x.meta(e)
	case *expr.Ct:
		switch e.Key {
		case expr.CtKeySTATE:
			x.load(e.Register, Expr{Field: State})
			return nil
		case expr.CtKeySTATUS:
			x.load(e.Register, Expr{Field: Status})
			return nil
		default:
			return fmt.Errorf("unknown ct key %d", e.Key)
		}
	case *expr.Fib:
		switch {
		case e.ResultADDRTYPE && e.FlagSADDR:
			x.load(e.Register, Expr{Field: SourceLocal})
		case e.ResultADDRTYPE && e.FlagDADDR:
			x.load(e.Register, Expr{Field: DestLocal})
		default:
			return errors.New("unknown result of fib")
		}
		return nil
	case *expr.Numgen:
		if e.Type != unix.NFT_NG_RANDOM || e.Offset != 0 {
			return errors.New("unknown kind of numgen")
		}
		x.load(e.Register, Expr{Field: Random, Mod: e.Modulus})
		return nil
	case *expr.Immediate:
		x.set(e.Register, loaded{data: e.Data})
		return nil
	case *expr.Bitwise:
		return x.bitwise(e)
	case *expr.Cmp:
		return x.compare(e)
	case *expr.Range:
		return x.compareRange(e)
	case *expr.Lookup:
		return x.lookup(e)
	case *expr.NAT:
		return x.dnat(e)
	case *expr.Masq:
		x.rule = append(x.rule, Masquerade{})
		return nil
	case *expr.Reject:
		x.rule = append(x.rule, Reject{TCPReset: e.Type == unix.NFT_REJECT_TCP_RST})
		return nil
	case *expr.Verdict:
		v, err := foreignVerdict(e)
		x.rule = append(x.rule, v)
		return err
	}
	return fmt.Errorf("unknown expression %T", e)
}

func (x *registers) payload(e *expr.Payload) error {
	source, dest, proto := uint32(12), uint32(16), uint32(9)
	if x.reader.table.Family == model.IPv6 {
		source, dest, proto = 8, 24, 6
	}
	if e.OperationType != expr.PayloadLoad {
		return errors.New("a rule writes to packets")
	}
	f := Expr{}
	size := uint32(x.reader.table.Family.Unspecified().BitLen() / 8)
	switch {
	case e.Base == expr.PayloadBaseNetworkHeader && e.Offset == source && e.Len <= size:
		f.Field = SourceAddr
	case e.Base == expr.PayloadBaseNetworkHeader && e.Offset == dest && e.Len <= size:
		f.Field = DestAddr
	case e.Base == expr.PayloadBaseNetworkHeader && e.Offset == proto && e.Len == 1:
		f.Field, size = Protocol, 1
	case e.Base == expr.PayloadBaseTransportHeader && e.Offset == 0 && e.Len == 2:
		f.Field, size = SourcePort, 2
	case e.Base == expr.PayloadBaseTransportHeader && e.Offset == 2 && e.Len == 2:
		f.Field, size = DestPort, 2
	default:
		return fmt.Errorf("unknown payload: base %d, offset %d, %d bytes", e.Base, e.Offset, e.Len)
	}
	if e.Len < size { // a prefix of whole bytes
		f.Mask = make([]byte, size)
		copy(f.Mask, bytes.Repeat([]byte{0xff}, int(e.Len)))
	}
	x.load(e.DestRegister, f)
	return nil
}

func (x *registers) meta(e *expr.Meta) error {
	if e.SourceRegister {
		v := x.loaded[index(e.Register)]
		switch {
		case e.Key != expr.MetaKeyMARK:
		case v.field != nil && v.field.Field == Mark:
			x.rule = append(x.rule, SetMark{And: v.and, Xor: v.xor})
			return nil
		case len(v.data) == 4:
			x.rule = append(x.rule, SetMark{Xor: nativeUint32(v.data)})
			return nil
		}
		return fmt.Errorf("a rule sets meta key %d", e.Key)
	}
	fields := map[expr.MetaKey]Field{
		expr.MetaKeyL4PROTO: Protocol, expr.MetaKeyMARK: Mark, expr.MetaKeyIIFNAME: Interface,
	}
	f, ok := fields[e.Key]
	if !ok {
		return fmt.Errorf("unknown meta key %d", e.Key)
	}
	x.load(e.Register, Expr{Field: f})
	return nil
}

// native reports whether the kernel has a field in the machine's byte order.
func native(f Field) bool {
	switch f {
	case Mark, State, Status, SourceLocal, DestLocal, Random:
		return true
	default:
		return false
	}
}

func nativeUint32(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }

func (x *registers) bitwise(e *expr.Bitwise) error {
	v := x.loaded[index(e.SourceRegister)]
	if v.field == nil {
		return errors.New("bits of a register without a field")
	}
	f := *v.field
	f.Mask = slices.Clone(e.Mask)
	if native(f.Field) && len(e.Mask) == 4 && len(e.Xor) == 4 {
		f.Mask = number(nativeUint32(e.Mask))
		v.and, v.xor = v.and&nativeUint32(e.Mask), v.xor&nativeUint32(e.Mask)^nativeUint32(e.Xor)
	}
	v.field = &f
	x.set(e.DestRegister, v)
	return nil
}

// value returns constants as a field has them in keys: padded if only the first bytes are compared.
func value(f *Expr, b []byte) []byte {
	switch {
	case native(f.Field) && len(b) == 4:
		return number(nativeUint32(b))
	case f.Field == Interface:
		if name, _, complete := bytes.Cut(b, []byte{0}); complete {
			return name
		}
		return append(slices.Clone(b), '*') // the beginning of a name
	case f.Mask != nil && len(b) < len(f.Mask):
		return append(slices.Clone(b), make([]byte, len(f.Mask)-len(b))...)
	}
	return b
}

func (x *registers) compare(e *expr.Cmp) error {
	v := x.loaded[index(e.Register)]
	if v.field == nil || v.xor != 0 {
		return errors.New("unknown comparison")
	}
	than := value(v.field, e.Data)
	switch e.Op {
	case expr.CmpOpEq, expr.CmpOpNeq:
		x.match(v, e.Op == expr.CmpOpNeq, Element{From: [][]byte{than}})
	case expr.CmpOpGte:
		x.match(v, false, Element{From: [][]byte{than}, To: [][]byte{bytes.Repeat([]byte{0xff}, len(than))}})
	case expr.CmpOpLte:
		x.match(v, false, Element{From: [][]byte{make([]byte, len(than))}, To: [][]byte{than}})
	default:
		return errors.New("unknown comparison")
	}
	return nil
}

func (x *registers) compareRange(e *expr.Range) error {
	v := x.loaded[index(e.Register)]
	if v.field == nil || e.Op != expr.CmpOpEq && e.Op != expr.CmpOpNeq {
		return errors.New("unknown comparison with a range")
	}
	x.match(v, e.Op == expr.CmpOpNeq, Element{
		From: [][]byte{value(v.field, e.FromData)}, To: [][]byte{value(v.field, e.ToData)},
	})
	return nil
}

func (x *registers) match(v loaded, not bool, e Element) {
	x.rule = append(x.rule, Match{Key: Key{*v.field}, Not: not, In: &Set{Elements: []Element{e}}})
}

func (x *registers) lookup(e *expr.Lookup) error {
	in := x.reader.table.Sets[e.SetName]
	if in == nil {
		return fmt.Errorf("no set %s", e.SetName)
	}
	key, err := x.key(e.SourceRegister, x.reader.types[e.SetName])
	if err != nil {
		return fmt.Errorf("set %s: %w", e.SetName, err)
	}
	switch {
	case !e.IsDestRegSet:
		x.rule = append(x.rule, Match{Key: key, Not: e.Invert, In: in})
	case e.DestRegister == unix.NFT_REG_VERDICT:
		x.rule = append(x.rule, VerdictMap{Key: key, Map: in})
	default:
		x.set(e.DestRegister, loaded{key: key, in: in})
	}
	return nil
}

// key returns the fields in the registers from one on.
func (x *registers) key(register uint32, types []nftables.SetDatatype) (key Key, err error) {
	at := index(register)
	for _, t := range types {
		v := x.loaded[at]
		if v.field == nil {
			return nil, errors.New("a component of the key is not loaded")
		}
		key = append(key, *v.field)
		at += (int(t.Bytes) + 3) / 4
	}
	return key, nil
}

func (x *registers) dnat(e *expr.NAT) error {
	addr, port := x.loaded[index(e.RegAddrMin)], x.loaded[index(e.RegProtoMin)]
	switch {
	case e.Type != expr.NATTypeDestNAT:
		return errors.New("unknown kind of NAT")
	case addr.in != nil:
		x.rule = append(x.rule, DNAT{Key: addr.key, Map: addr.in})
		return nil
	case addr.data != nil && len(port.data) >= 2:
		to, err := destination(x.reader.table.Family, append(slices.Clone(addr.data), port.data...))
		x.rule = append(x.rule, DNAT{To: to})
		return err
	}
	return errors.New("DNAT to what is not known")
}
