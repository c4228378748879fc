package nft

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"strings"
	"time"

	"github.com/vmapd/vmapd/model"
)

// Field is a part of a packet, or of its conntrack entry, that a rule matches.
type Field uint8

// The fields.
const (
	SourceAddr   Field = iota // ip saddr
	DestAddr                  // ip daddr
	Protocol                  // meta l4proto
	DestPort                  // th dport
	OrigDestAddr              // ct original ip daddr: before any DNAT
	OrigDestPort              // ct original proto-dst
	SourcePort                // th sport

	// The choices of a slot are no fields of a packet, but components of keys like these.
	RandomSlot // numgen random mod N
	HashSlot   // jhash ip saddr mod N
	FlowSlot   // jhash ip saddr . th sport mod N

	Constant // numgen random mod 1 offset N, which is N: nft has no other form for a number in a key
)

// Expr is one component of a key.
type Expr struct {
	Field Field
	Mod   uint32 // choices only: slots 0 to Mod-1
	Value uint32 // of a Constant
}

// Hashed returns the fields that a choice hashes, if it does. The seed is [model.HashSeed].
func (e Expr) Hashed() Key {
	switch e.Field {
	case HashSlot:
		return Key{{Field: SourceAddr}}
	case FlowSlot:
		return Key{{Field: SourceAddr}, {Field: SourcePort}}
	default:
		return nil
	}
}

// fieldTexts are the expressions as nft writes them, with IP for the word of the family.
var fieldTexts = [...]string{
	SourceAddr: "IP saddr", DestAddr: "IP daddr", Protocol: "meta l4proto", DestPort: "th dport",
	OrigDestAddr: "ct original IP daddr", OrigDestPort: "ct original proto-dst", SourcePort: "th sport",
	RandomSlot: "numgen random", HashSlot: "jhash", FlowSlot: "jhash", Constant: "numgen random mod 1 offset",
}

func (e Expr) text(f model.Family) string {
	text := strings.ReplaceAll(fieldTexts[e.Field], "IP", FamilyWord(f))
	if hashed := e.Hashed(); hashed != nil {
		return fmt.Sprintf("%s %s mod %d seed %#x", text, hashed.text(f), e.Mod, model.HashSeed)
	}
	switch e.Field {
	case RandomSlot:
		return fmt.Sprintf("%s mod %d", text, e.Mod)
	case Constant:
		return fmt.Sprintf("%s %d", text, e.Value)
	default:
		return text
	}
}

// FamilyWord is the name of a family of tables.
func FamilyWord(f model.Family) string {
	return [...]string{model.IPv4: "ip", model.IPv6: "ip6"}[f]
}

// Key is the key by which a packet is looked up: one expression, or several concatenated.
type Key []Expr

func (k Key) text(f model.Family) string { return joined(k, f, " . ") }

func joined[T Statement](list []T, f model.Family, separator string) string {
	words := make([]string, len(list))
	for i, s := range list {
		words[i] = s.text(f)
	}
	return strings.Join(words, separator)
}

// Statement is one condition or action of a rule.
type Statement interface {
	// text is the statement as nft writes it.
	text(f model.Family) string
}

// Rule is a list of statements: conditions, and at the end usually an action.
type Rule []Statement

// Text returns the rule as nft writes it.
func (r Rule) Text(f model.Family) string { return joined(r, f, " ") }

// encoding is the version of the encoder in nft/kernel. It is raised when the same text gets other bytes, so that rules
// of the version before are written again.
const encoding = 1

// Hash returns a hash of the rule's text. The kernel keeps it with the rule, and so the rule is recognised when it is
// read.
func (r Rule) Hash(f model.Family) uint64 {
	if read, ok := r[0].(ReadRule); ok {
		return read.Hash
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s", encoding, r.Text(f)) // never fails
	return h.Sum64()
}

// The statements. There are no others: the printer, the encoder and the simulator know each.
type (
	// MatchProtocol goes on if the packet's protocol is this.
	MatchProtocol struct{ Protocol model.Protocol }

	// MatchSource goes on if the source address lies in a prefix or, with Not, if it does not.
	MatchSource struct {
		Prefix netip.Prefix
		Not    bool
	}

	// Match goes on if the packet or its connection has a property.
	Match uint8

	// MatchInterface goes on if the packet came in by this interface or, with Wildcard, by
	// one with a name that begins like this. A packet that the node itself sends came in by none.
	MatchInterface struct {
		Name     string
		Wildcard bool
		Not      bool
	}

	// AddFlow lets the other packets of the connection take the fast path. This packet goes on.
	AddFlow struct{ Flowtable string }

	// InSet goes on if the key is in a set or, with Not, if it is not.
	InSet struct {
		Key Key
		Set string
		Not bool
	}

	// VerdictMap applies the map's verdict for the key; goes on if there is no such key.
	VerdictMap struct {
		Key Key
		Map string
	}

	// DNAT replaces the destination by the map's data for the key, and accepts. It goes on
	// with the next rule if there is no such key.
	DNAT struct {
		Key Key
		Map string
	}

	// Remember stores in a map, for some time, the endpoint of the packet's source. A source
	// that is there already keeps its endpoint, and its timeout begins anew.
	Remember struct {
		Map     string
		Timeout time.Duration // whole seconds
	}

	// Forget deletes the packet's source from a map that remembers endpoints.
	Forget struct{ Map string }

	// SetTimeout gives a new connection a timeout policy, if it has the policy's protocol.
	SetTimeout struct{ Timeout string }

	// MatchRepeated goes on if the packet is a first packet for the key, and not among the first After ones: nobody has
	// answered these. The set has the keys, each until there was no packet for its Timeout.
	MatchRepeated struct {
		Key   Key
		Set   string
		After uint32
	}

	// Discard deletes the key from a set that packets fill. Whether it was there does not matter.
	Discard struct {
		Key Key
		Set string
	}

	// Masquerade replaces the source by the address of the outgoing interface, and accepts. Ports are chosen at random, so
	// that two nodes or two clients that pick at the same time rarely collide.
	Masquerade struct{}

	// Reject rejects the packet: a TCP connection with a reset, others with ICMP port unreachable.
	Reject struct{ TCPReset bool }
)

// The properties.
const (
	MatchDNAT         Match = iota // the connection's destination was replaced by another one
	MatchUntranslated              // it was not
	MatchFirst                     // the first of its connection: the kernel confirms it when it has passed all hooks
	MatchFromNode                  // from an address of this node
	MatchToNode                    // to an address of this node
	MatchNotToNode                 // to another one
	MatchOriginal                  // of the first packet's direction: no reset or ICMP error that answers that
	MatchInvalid                   // of the conntrack state INVALID
	MatchEstablished               // packets of the connection have come from both sides
	MatchSYNACK                    // TCP's answer to a first packet
	// MatchManyPackets: the connection has had more than FastPathAfter, in both directions. The kernel counts those of
	// connections that begin after it has got such a rule (net.netfilter.nf_conntrack_acct).
	MatchManyPackets
)

var matchTexts = [...]string{
	MatchDNAT: "ct status dnat", MatchUntranslated: "ct status & dnat == 0", MatchFirst: "ct status & confirmed == 0",
	MatchFromNode: "fib saddr type local", MatchToNode: "fib daddr type local", MatchNotToNode: "fib daddr type != local",
	MatchOriginal: "ct direction original", MatchInvalid: "ct state invalid",
	MatchEstablished: "ct state established", MatchSYNACK: "tcp flags & (syn | ack) == syn | ack",
	MatchManyPackets: fmt.Sprint("ct packets > ", FastPathAfter),
}

// Verdict ends a rule, or is an element's data.
type Verdict struct {
	Kind  VerdictKind
	Chain string // Jump and Goto only
}

// VerdictKind is a kind of verdict.
type VerdictKind uint8

// The verdicts.
const (
	NoVerdict VerdictKind = iota // an element of something other than a verdict map
	DropPacket
	Return
	Jump
	Goto
)

func (s MatchProtocol) text(model.Family) string { return "meta l4proto " + s.Protocol.String() }

// not is the operator before what is compared; "" stands for equality.
func not(is bool) string {
	if is {
		return "!= "
	}
	return ""
}

func (s MatchSource) text(f model.Family) string {
	return FamilyWord(f) + " saddr " + not(s.Not) + s.Prefix.String()
}

func (m Match) text(model.Family) string { return matchTexts[m] }

func (s MatchInterface) text(model.Family) string {
	star := ""
	if s.Wildcard {
		star = "*"
	}
	return fmt.Sprintf("iifname %s\"%s%s\"", not(s.Not), s.Name, star)
}

func (s InSet) text(f model.Family) string { return s.Key.text(f) + " " + not(s.Not) + "@" + s.Set }

func (s Remember) text(f model.Family) string {
	ip := FamilyWord(f)
	return fmt.Sprintf("update @%s { %s saddr timeout %s : %s daddr . th dport }", s.Map, ip, durationText(s.Timeout), ip)
}

func (s Forget) text(f model.Family) string {
	ip := FamilyWord(f)
	return fmt.Sprintf("delete @%s { %s saddr : %s daddr . th dport }", s.Map, ip, ip)
}

func (s SetTimeout) text(model.Family) string { return fmt.Sprintf("ct timeout set %q", s.Timeout) }

// text has a limit because nft can't compare the counter of an element: a bucket with this many packets, which one an
// hour fills.
func (s MatchRepeated) text(f model.Family) string {
	const element = "update @%s { %s limit rate over 1/hour burst %d packets }"
	return fmt.Sprintf(element, s.Set, s.Key.text(f), s.After)
}

func (s Discard) text(f model.Family) string {
	return "delete @" + s.Set + " { " + s.Key.text(f) + " }"
}

// durationText writes a duration of whole seconds as nft does, but for days: 25h1m1s.
func durationText(d time.Duration) string {
	return strings.ReplaceAll(strings.ReplaceAll(d.String(), "m0s", "m"), "h0m", "h")
}

func (s VerdictMap) text(f model.Family) string { return s.Key.text(f) + " vmap @" + s.Map }

func (s DNAT) text(f model.Family) string {
	return "dnat " + FamilyWord(f) + " to " + s.Key.text(f) + " map @" + s.Map
}

func (Masquerade) text(model.Family) string { return "masquerade fully-random" }

func (s Reject) text(model.Family) string {
	if s.TCPReset {
		return "reject with tcp reset"
	}
	return "reject"
}

func (v Verdict) text(model.Family) string { return v.String() }

func (v Verdict) String() string {
	words := [...]string{NoVerdict: "continue", DropPacket: "drop", Return: "return", Jump: "jump ", Goto: "goto "}
	return words[v.Kind] + v.Chain // which only Jump and Goto have
}

func (s AddFlow) text(model.Family) string { return "flow add @" + s.Flowtable }
