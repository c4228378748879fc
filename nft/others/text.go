package others

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
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
	xor  []byte
	data []byte // of a constant
	size uint32 // in bytes; 4 if it is 0
}

// ruleText returns the text of a rule. elements returns the elements of an anonymous set.
func ruleText(exprs []any, elements func(set string) [][]byte) string {
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

func (w *writer) write(e any) {
	switch e := e.(type) {
	case *expr.Payload:
		w.load(e.DestRegister, w.payload(e))
	case *expr.Meta:
		w.loadOrSet(e.SourceRegister, e.Register, meta(e.Key))
	case *expr.Ct:
		w.loadOrSet(e.SourceRegister, e.Register, ct(e))
	case *expr.Fib:
		w.load(e.Register, fib(e))
	case *expr.Numgen:
		kind := map[uint32]string{unix.NFT_NG_INCREMENTAL: "inc", unix.NFT_NG_RANDOM: "random"}[e.Type]
		w.load(e.Register, operand{text: fmt.Sprintf("numgen %s mod %d", kind, e.Modulus), show: number})
	case *expr.Hash:
		w.load(e.DestRegister, operand{text: fmt.Sprintf("jhash … mod %d", e.Modulus), show: number})
	case *expr.Immediate:
		w.load(e.Register, constant(e.Data))
	case *expr.Bitwise:
		o := w.at(e.SourceRegister)
		o.mask, o.xor = e.Mask, e.Xor
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

// loadOrSet loads an operand into a register, or writes that it is set to what the register holds.
func (w *writer) loadOrSet(set bool, n uint32, o operand) {
	if set {
		w.say("%s set %s", o.text, w.at(n).value())
	} else {
		w.load(n, o)
	}
}

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
func (w *writer) statement(e any) {
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
		w.say("%s", targetText(e))
	case *expr.FlowOffload:
		w.say("flow add @%s", e.Name)
	case unread:
		w.say("unknown %q", string(e))
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
		expr.VerdictDrop: "drop", expr.VerdictAccept: "accept", expr.VerdictReturn: "return",
		expr.VerdictContinue: "continue", expr.VerdictJump: "jump", expr.VerdictGoto: "goto",
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
	if e.Op == expr.CmpOpGte {
		w.load(e.Register, o) // the end of a range is compared with the same register
	}
	isProtocol := o.text == "meta l4proto" || o.text == "ip protocol" || o.text == "ip6 nexthdr"
	if e.Op == expr.CmpOpEq && isProtocol {
		defer func() { w.l4 = o.show(e.Data) }()
	}
	zero := strings.Trim(string(e.Data), "\x00") == ""
	ones, size := net.IPMask(o.mask).Size() // 0, 0: it is not the mask of a prefix
	switch {
	case o.mask == nil:
		w.say("%s %s%s", o.text, operators[e.Op], o.show(e.Data))
	case e.Op == expr.CmpOpNeq && zero: // "ct state new": any of the bits
		w.say("%s %s", o.text, o.show(o.mask))
	case o.isAddress() && size > 0:
		w.say("%s %s%s/%d", o.text, operators[e.Op], o.show(e.Data), ones)
	default:
		w.say("%s & %s %s %s", o.text, o.show(o.mask), strings.TrimSpace(cmp.Or(operators[e.Op], "==")), o.show(e.Data))
	}
}

var operators = map[expr.CmpOp]string{
	expr.CmpOpEq: "", expr.CmpOpNeq: "!= ", expr.CmpOpLt: "< ", expr.CmpOpLte: "<= ", expr.CmpOpGt: "> ",
	expr.CmpOpGte: ">= ",
}

func negation(is bool) string {
	if is {
		return "!= "
	}
	return ""
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
