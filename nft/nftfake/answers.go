package nftfake

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	genmsg        = 4  // sizeof(struct nfgenmsg)
	tableOwner    = 7  // NFTA_TABLE_OWNER
	setElemKeyEnd = 10 // NFTA_SET_ELEM_KEY_END
	setCount      = 20 // NFTA_SET_COUNT
)

// attributes are those of an object, without flags, by their type.
type attributes map[uint16][]byte

func parse(b []byte) attributes {
	all := attributes{}
	list, err := netlink.UnmarshalAttributes(b)
	if err != nil {
		return all // what is missing is noticed
	}
	for _, a := range list {
		all[a.Type&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER)] = a.Data
	}
	return all
}

// list parses the members of a list.
func list(b []byte) []attributes {
	members, err := netlink.UnmarshalAttributes(b)
	if err != nil {
		return nil
	}
	all := make([]attributes, len(members))
	for i, m := range members {
		all[i] = parse(m.Data)
	}
	return all
}

func (a attributes) has(attr uint16) bool { _, ok := a[attr]; return ok }

func (a attributes) string(attr uint16) string { return strings.TrimSuffix(string(a[attr]), "\x00") }

func (a attributes) nested(attr uint16) attributes { return parse(a[attr]) }

func (a attributes) value(attr uint16) []byte { return a.nested(attr)[unix.NFTA_DATA_VALUE] }

func (a attributes) uint32(attr uint16) uint32 { return uint32(a.number(attr, 4)) }

func (a attributes) uint64(attr uint16) uint64 { return a.number(attr, 8) }

// number reads a number of size bytes; 0 if the attribute is shorter.
func (a attributes) number(attr uint16, size int) (n uint64) {
	for i := 0; i < size && len(a[attr]) >= size; i++ {
		n = n<<8 | uint64(a[attr][i])
	}
	return n
}

// with returns attributes with more.
func (a attributes) with(more attributes) attributes {
	all := maps.Clone(a)
	maps.Copy(all, more)
	return all
}

func (a attributes) marshal() []byte {
	var list []netlink.Attribute
	for _, attr := range slices.Sorted(maps.Keys(a)) {
		list = append(list, netlink.Attribute{Type: attr, Data: a[attr]})
	}
	b, err := netlink.MarshalAttributes(list)
	if err != nil {
		panic(err) // a bug of ours
	}
	return b
}

func text(s string) []byte { return append([]byte(s), 0) }

func number(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

func long(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// get answers a question.
func (s *Socket) get(m netlink.Message, f Fault) {
	attrs, isList := parse(m.Data[genmsg:]), m.Header.Flags&netlink.Dump == netlink.Dump
	if err := f.refusal(); err != 0 && !(isList && f == Interrupted) {
		s.answer(m, err)
		return
	}
	kind := m.Header.Type & 0xff
	objects, err := s.kernel.objects(m.Data[0], kind, attrs, isList)
	answer := m.Header.Type - 1 // as NFT_MSG_NEWTABLE is one less than NFT_MSG_GETTABLE, and so on
	flags := netlink.HeaderFlags(0)
	if isList {
		flags = netlink.Multi
	}
	begin := len(s.queue)
	header := binary.BigEndian.AppendUint16([]byte{m.Data[0], unix.NFNETLINK_V0}, uint16(s.kernel.generation))
	for _, o := range objects {
		s.put(answer, flags, m, append(slices.Clone(header), o.marshal()...))
	}
	switch {
	case err != 0:
		s.answer(m, err)
	case isList:
		if f == Interrupted {
			s.queue = s.queue[:begin+len(objects)/2]
		}
		s.put(netlink.Done, flags, m, make([]byte, 4))
		if f == Interrupted {
			interrupt(s.queue[len(s.queue)-1].b)
		}
	}
}

// objects returns what is asked for, and what went wrong behind it.
func (k *Kernel) objects(
	family byte, kind netlink.HeaderType, attrs attributes, isList bool,
) ([]attributes, unix.Errno) {
	name := attrs.string(unix.NFTA_TABLE_NAME)
	at := k.tables[tableKey{family, name}]
	switch {
	case kind == unix.NFT_MSG_GETCHAIN && isList:
		return k.allChains(family), 0
	case at == nil:
		return nil, unix.ENOENT
	case kind == unix.NFT_MSG_GETTABLE && !isList:
		made := at.attrs.with(attributes{unix.NFTA_TABLE_FLAGS: number(at.flags)})
		if at.flags&flagOwner != 0 {
			made[tableOwner] = number(at.owner)
		}
		return []attributes{made}, 0
	case kind == unix.NFT_MSG_GETRULE && isList:
		return at.allRules(name, attrs.string(unix.NFTA_RULE_CHAIN)), 0
	case kind == unix.NFT_MSG_GETOBJ && isList:
		return at.objects, 0
	case kind == unix.NFT_MSG_GETSET && isList:
		return at.allSets(name, !k.OnlyBefore616), 0
	case kind == unix.NFT_MSG_GETSETELEM:
		s := at.set(attrs.string(unix.NFTA_SET_ELEM_LIST_SET))
		switch {
		case s == nil:
			return nil, unix.ENOENT
		case isList:
			return s.allElements(name), 0
		}
		return s.someElements(name, list(attrs[unix.NFTA_SET_ELEM_LIST_ELEMENTS]))
	}
	return nil, unix.EOPNOTSUPP
}

// allChains returns the chains of all tables of a family.
func (k *Kernel) allChains(family byte) (all []attributes) {
	for key, t := range k.tables {
		for _, c := range t.chains {
			if key.family == family {
				all = append(all, c.attrs.with(attributes{unix.NFTA_CHAIN_TABLE: text(key.name)}))
			}
		}
	}
	return all
}

func (t *table) allRules(table, chain string) (all []attributes) {
	for _, c := range t.chains {
		for _, r := range c.rules {
			if chain == "" || chain == c.name {
				all = append(all, attributes{
					unix.NFTA_RULE_TABLE: text(table), unix.NFTA_RULE_CHAIN: text(c.name),
					unix.NFTA_RULE_HANDLE: long(r.handle), unix.NFTA_RULE_EXPRESSIONS: r.exprs,
					unix.NFTA_RULE_USERDATA: r.userdata,
				})
			}
		}
	}
	return all
}

func (t *table) allSets(table string, withCount bool) (all []attributes) {
	for _, s := range t.sets {
		made := s.attrs.with(attributes{unix.NFTA_SET_TABLE: text(table)})
		if withCount {
			made[setCount] = number(uint32(len(s.elements)))
		}
		all = append(all, made)
	}
	return all
}

// allElements returns the elements of a set, some to a message.
func (s *set) allElements(table string) (all []attributes) {
	const some = 20
	now := time.Now()
	for keys := range slices.Chunk(slices.Sorted(maps.Keys(s.elements)), some) {
		var list []element
		for _, key := range keys {
			if e := s.elements[key]; e.lives(now) {
				list = append(list, e)
			}
		}
		all = append(all, s.answer(table, now, list...))
	}
	return all
}

// someElements returns the elements that are asked for, each in a message of its own, up to one
// that is not there.
func (s *set) someElements(table string, wanted []attributes) (all []attributes, err unix.Errno) {
	now := time.Now()
	for _, w := range wanted {
		key, err := s.key(w)
		if err != 0 {
			return all, err
		}
		e, ok := s.elements[key]
		if !ok || !e.lives(now) {
			return all, unix.ENOENT
		}
		all = append(all, s.answer(table, now, e))
	}
	return all, 0
}

func (s *set) answer(table string, now time.Time, elements ...element) attributes {
	var list []netlink.Attribute
	for _, e := range elements {
		made := e.attrs
		if !e.expires.IsZero() {
			left := max(1, e.expires.Sub(now).Milliseconds())
			made = made.with(attributes{unix.NFTA_SET_ELEM_EXPIRATION: long(uint64(left))})
		}
		list = append(list, netlink.Attribute{Type: unix.NFTA_LIST_ELEM, Data: made.marshal()})
	}
	b, err := netlink.MarshalAttributes(list)
	if err != nil {
		panic(err) // a bug of ours
	}
	return attributes{
		unix.NFTA_SET_ELEM_LIST_TABLE: text(table), unix.NFTA_SET_ELEM_LIST_SET: text(s.name),
		unix.NFTA_SET_ELEM_LIST_ELEMENTS: b,
	}
}
