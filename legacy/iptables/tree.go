package iptables

import (
	"cmp"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/persist"
)

// A tree of chains leads to the rules about single addresses or ports. Each chain selects by one hexadecimal digit the
// next chain, and the chains at the end have the rules: no address or port with other digits changes them.
//
//	VMAPD-SERVICES ──(ends with 9)──> VMAPD-IP-9 ──(29)──> VMAPD-IP-29 ──(029)──> VMAPD-IP-029
//
// Only chains that lead somewhere exist. Addresses are distinguished by their last digits, which differ between
// addresses that were assigned one after the other; ports by their first: iptables has ranges of ports, no masks.
type treeID uint8

const (
	natAddrs treeID = iota
	filterAddrs
	natPorts
	filterPorts
	hairpins
	trees
)

// maxDepth is the number of digits that lead to an end.
const maxDepth = 3

// A treeKind has the properties of one tree.
type treeKind struct {
	table table
	root  string // chain
	name  string // beginning of the other chains' names; "" for ports, where it is the protocol's
	match string // the option for addresses, "" for ports
	depth uint8
}

var treeKinds = [trees]treeKind{
	natAddrs:    {nat, servicesChain, Prefix + "IP-", "-d", 3},
	filterAddrs: {filter, servicesChain, Prefix + "IP-", "-d", 3},
	natPorts:    {nat, nodePortsChain, "", "", 3},
	filterPorts: {filter, nodePortsChain, "", "", 3},
	// No more addresses than a node has pods: two digits suffice.
	hairpins: {nat, hairpinChain, Prefix + "HAIRPIN-", "-s", 2},
}

// place is a chain of a tree: the digits that lead there from the root.
type place struct {
	tree   treeID
	depth  uint8
	digits [maxDepth]uint8 // of ports the first one is 16 times the index in protocols more
}

// protocols, as the first digit of a port has them.
var protocols = [...]model.Protocol{model.TCP, model.UDP, model.SCTP}

func atAddr(t treeID, a netip.Addr) place {
	b := a.AsSlice()
	n := len(b)
	p := place{tree: t, depth: treeKinds[t].depth}
	for i, d := range [...]uint8{b[n-1] & 15, b[n-1] >> 4, b[n-2] & 15} {
		if i < int(p.depth) {
			p.digits[i] = d
		}
	}
	return p
}

func atPort(t treeID, proto model.Protocol, port uint16) place {
	index := uint8(slices.Index(protocols[:], proto)) //nolint:gosec // one of three
	return place{t, maxDepth, [...]uint8{index<<4 | uint8(port>>12), uint8(port>>8) & 15, uint8(port>>4) & 15}}
}

func (p place) parent() place {
	p.depth--
	p.digits[p.depth] = 0
	return p
}

func (p place) child(digit uint8) place {
	p.digits[p.depth] = digit
	p.depth++
	return p
}

// name returns the chain's name. Its digits read as they do in the address, or the port.
func (p place) name() string {
	k := treeKinds[p.tree]
	if p.depth == 0 {
		return k.root
	}
	digits := slices.Clone(p.digits[:p.depth])
	name := k.name
	if k.match == "" {
		name = Prefix + [...]string{"TCP-", "UDP-", "SCTP-"}[digits[0]>>4]
	} else {
		slices.Reverse(digits)
	}
	for _, d := range digits {
		name += strconv.FormatUint(uint64(d&15), 16)
	}
	return name
}

// leadsHere returns the match by which the parent sends packets to this chain.
func (p place) leadsHere(f model.Family) string {
	k := treeKinds[p.tree]
	at := int(p.depth) - 1
	if k.match != "" {
		shift := 4 * at
		return k.match + " " + lowBits(f, uint16(p.digits[at])<<shift) + "/" + lowBits(f, 15<<shift)
	}
	first := uint16(0)
	for i, d := range p.digits[:p.depth] {
		first |= uint16(d&15) << (12 - 4*i)
	}
	last := first | (1<<(12-4*at) - 1)
	proto := protocols[p.digits[0]>>4].String()
	return fmt.Sprintf("-p %s -m %s --dport %d:%d", proto, proto, first, last)
}

// lowBits returns the address with these last 16 bits and no others.
func lowBits(f model.Family, n uint16) string {
	hi, lo := byte(n>>8), byte(n)
	if f == model.IPv4 {
		return netip.AddrFrom4([4]byte{2: hi, 3: lo}).String()
	}
	return netip.AddrFrom16([16]byte{14: hi, 15: lo}).String()
}

// A node is the content of a tree's chain. It is immutable.
type node struct {
	children uint64 // digits, as bits
	entries  []entry
}

// rules returns the number of rules in its chain.
func (n *node) rules() int { return bits.OnesCount64(n.children) + len(n.entries) }

// entry is a rule at the end of a tree.
type entry struct {
	key  entryKey
	rule string
}

// entryKey orders the rules of one chain: all about one address stand together.
type entryKey struct {
	addr     netip.Addr
	class    class
	protocol model.Protocol
	port     uint16
}

// A class orders the rules about one address. A Service's port precedes node ports, since the address may be one of the
// node's as well. The rule for all other ports of a cluster IP comes last.
type class uint8

const (
	aFrontend class = iota
	aNodeAddr
	aClusterIP
)

func compareKeys(a, b entryKey) int {
	return cmp.Or(a.addr.Compare(b.addr), cmp.Compare(a.class, b.class),
		cmp.Compare(a.protocol, b.protocol), cmp.Compare(a.port, b.port))
}

// chain returns the chain as text.
func (p place) chain(f model.Family, n *node) chain {
	c := chain{table: treeKinds[p.tree].table, name: p.name()}
	for left := n.children; left != 0; left &= left - 1 {
		child := p.child(uint8(bits.TrailingZeros64(left))) //nolint:gosec // below 64
		c.add(child.leadsHere(f), "-g "+child.name())
	}
	for _, e := range n.entries {
		c.add("", e.rule)
	}
	return c
}

// forest holds the chains of all trees of a ruleset.
type forest = persist.Map[place, *node]

type forestEdit = persist.Edit[place, *node]

var placeKeys = persist.KeyFuncs[place]{Hash: hashPlace, Compare: comparePlaces}

func hashPlace(p place) uint64 {
	h := uint64(p.tree)<<8 | uint64(p.depth)
	for _, d := range p.digits {
		h = h<<8 | uint64(d)
	}
	return h * 0x9e3779b97f4a7c15 >> 32 // Fibonacci hashing: the digits reach all shards
}

func comparePlaces(a, b place) int {
	return cmp.Or(cmp.Compare(a.tree, b.tree), cmp.Compare(a.depth, b.depth), slices.Compare(a.digits[:], b.digits[:]))
}

// saplings returns the trees without entries. Their roots are always there: rules outside the trees lead to them.
func saplings() forest {
	edit := forest{}.Edit(placeKeys)
	for t := range trees {
		edit.Set(place{tree: t}, &node{})
	}
	return edit.Done()
}

// replant returns the trees without some entries, and with others. It removes before it adds, because an address may
// move from one Service to another.
func replant(f forest, removed, added []placed) forest {
	edit := f.Edit(placeKeys)
	for _, e := range removed {
		n := nodeAt(edit, e.place)
		same := func(o entry) bool { return o.key == e.key }
		store(edit, e.place, node{n.children, slices.DeleteFunc(slices.Clone(n.entries), same)})
	}
	for _, e := range added {
		n := nodeAt(edit, e.place)
		i, _ := slices.BinarySearchFunc(n.entries, e.key, func(o entry, k entryKey) int { return compareKeys(o.key, k) })
		store(edit, e.place, node{n.children, slices.Insert(slices.Clone(n.entries), i, e.entry)})
	}
	return edit.Done()
}

func nodeAt(edit *forestEdit, p place) node {
	if n, ok := edit.Get(p); ok {
		return *n
	}
	return node{}
}

// store replaces a chain, or removes an empty one. If it appears or disappears, the one above changes, too.
func store(edit *forestEdit, p place, n node) {
	_, existed := edit.Get(p)
	exists := n.rules() > 0 || p.depth == 0
	if exists {
		edit.Set(p, &n)
	} else {
		edit.Delete(p)
	}
	if exists != existed {
		above := nodeAt(edit, p.parent())
		above.children ^= 1 << p.digits[p.depth-1]
		store(edit, p.parent(), above)
	}
}
