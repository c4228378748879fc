package nftfake

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	flagOwner   = 2 // NFT_TABLE_F_OWNER
	flagPersist = 4 // NFT_TABLE_F_PERSIST
)

// tables are all that the kernel has. Rules and elements never change.
type tables map[tableKey]*table

type tableKey struct {
	family byte
	name   string
}

type table struct {
	flags, owner uint32
	generation   uint32 // that changed it last
	attrs        attributes
	chains       []*chain
	sets         []*set
	objects      []attributes // timeout policies
	before       *table       // as it was before the batch; nil: it was not there
}

type chain struct {
	name   string
	attrs  attributes
	isBase bool
	rules  []rule
}

type rule struct {
	handle       uint64
	exprs        []byte
	userdata     []byte
	chains, sets []string // which it refers to
	objects      []string
}

type set struct {
	name     string
	attrs    attributes
	flags    uint32
	elements map[string]element
}

type element struct {
	attrs   attributes
	chain   string    // of its verdict
	expires time.Time // zero: never
}

func (t tables) clone() tables {
	all := make(tables, len(t))
	for key, one := range t {
		c := *one
		c.before = one
		c.chains, c.sets, c.objects = slices.Clone(one.chains), slices.Clone(one.sets), slices.Clone(one.objects)
		for i, ch := range c.chains {
			made := *ch
			made.rules = slices.Clone(ch.rules)
			c.chains[i] = &made
		}
		for i, s := range c.sets {
			made := *s
			made.elements = maps.Clone(s.elements)
			c.sets[i] = &made
		}
		all[key] = &c
	}
	for _, one := range t {
		one.before = nil // it is forgotten with the batch
	}
	return all
}

func (t *table) chain(name string) *chain {
	if i := slices.IndexFunc(t.chains, func(c *chain) bool { return c.name == name }); i >= 0 {
		return t.chains[i]
	}
	return nil
}

func (t *table) set(name string) *set {
	if i := slices.IndexFunc(t.sets, func(s *set) bool { return s.name == name }); i >= 0 {
		return t.sets[i]
	}
	return nil
}

// anyElement reports whether the verdict of an element is to go to a chain.
func (t *table) anyElement(chain string) bool {
	if t == nil {
		return false
	}
	for _, s := range t.sets {
		for _, e := range s.elements {
			if e.chain == chain {
				return true
			}
		}
	}
	return false
}

func (t *table) anyRule(yes func(rule) bool) bool {
	return slices.ContainsFunc(t.chains, func(c *chain) bool { return slices.ContainsFunc(c.rules, yes) })
}

// transaction is a batch that is being carried out.
type transaction struct {
	kernel  *Kernel
	port    uint32
	now     time.Time
	tables  tables
	changed map[tableKey]bool
}

// request carries out one message.
func (t *transaction) request(m netlink.Message) unix.Errno {
	attrs := parse(m.Data[genmsg:])
	key := tableKey{m.Data[0], attrs.string(unix.NFTA_TABLE_NAME)} // the table's name, for all
	at := t.tables[key]
	if key.family != unix.NFPROTO_IPV4 && key.family != unix.NFPROTO_IPV6 {
		return unix.EAFNOSUPPORT
	}
	if at != nil && at.flags&flagOwner != 0 && at.owner != t.port {
		return unix.EPERM
	}
	t.changed[key] = true
	kind := uint16(m.Header.Type & 0xff)
	if kind == unix.NFT_MSG_NEWTABLE {
		return t.newTable(key, attrs, m.Header.Flags)
	}
	if at == nil {
		return unix.ENOENT
	}
	switch kind {
	case unix.NFT_MSG_DELTABLE:
		delete(t.tables, key)
		return 0
	case unix.NFT_MSG_NEWCHAIN:
		return at.newChain(attrs, m.Header.Flags)
	case unix.NFT_MSG_DELCHAIN:
		return at.deleteChain(attrs.string(unix.NFTA_CHAIN_NAME))
	case unix.NFT_MSG_NEWRULE:
		t.kernel.handle++
		return at.newRule(attrs, t.kernel.handle)
	case unix.NFT_MSG_DELRULE:
		return at.flush(attrs)
	case unix.NFT_MSG_NEWOBJ:
		return at.newObject(attrs)
	case unix.NFT_MSG_DELOBJ:
		return at.deleteObject(attrs.string(unix.NFTA_OBJ_NAME))
	case unix.NFT_MSG_NEWSET:
		return at.newSet(attrs, m.Header.Flags)
	case unix.NFT_MSG_DELSET:
		return at.deleteSet(attrs.string(unix.NFTA_SET_NAME))
	case unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_DELSETELEM:
		return t.elements(at, attrs, kind, m.Header.Flags)
	}
	return unix.EINVAL
}

func (t *transaction) newTable(key tableKey, attrs attributes, header netlink.HeaderFlags) unix.Errno {
	flags := attrs.uint32(unix.NFTA_TABLE_FLAGS)
	if flags&^(flagOwner|flagPersist) != 0 || flags != 0 && t.kernel.OnlyBefore69 {
		return unix.EOPNOTSUPP
	}
	at := t.tables[key]
	switch {
	case at == nil && header&netlink.Create == 0:
		return unix.ENOENT
	case at == nil:
		at = &table{attrs: attrs}
		t.tables[key] = at
	case header&netlink.Excl != 0:
		return unix.EEXIST
	case at.flags == flags:
		return 0
	case flags != flagOwner|flagPersist || at.flags != flagPersist: // only what nobody owns can be claimed
		return unix.EOPNOTSUPP
	}
	at.flags = flags
	if flags&flagOwner != 0 {
		at.owner = t.port
	}
	return 0
}

func (t *table) newChain(attrs attributes, header netlink.HeaderFlags) unix.Errno {
	name := attrs.string(unix.NFTA_CHAIN_NAME)
	if c := t.chain(name); c != nil {
		if header&netlink.Excl != 0 || attrs.has(unix.NFTA_CHAIN_HOOK) &&
			!bytes.Equal(attrs[unix.NFTA_CHAIN_HOOK], c.attrs[unix.NFTA_CHAIN_HOOK]) {
			return unix.EEXIST
		}
		return 0
	}
	if name == "" {
		return unix.EINVAL
	}
	t.chains = append(t.chains, &chain{name: name, attrs: attrs, isBase: attrs.has(unix.NFTA_CHAIN_HOOK)})
	return 0
}

func (t *table) deleteChain(name string) unix.Errno {
	i := slices.IndexFunc(t.chains, func(c *chain) bool { return c.name == name })
	if i < 0 {
		return unix.ENOENT
	}
	t.chains[i].rules = nil
	isTarget := func(r rule) bool { return slices.Contains(r.chains, name) }
	if t.anyRule(isTarget) || t.anyElement(name) || t.before.anyElement(name) {
		return unix.EBUSY
	}
	t.chains = slices.Delete(t.chains, i, i+1)
	return 0
}

func (t *table) newRule(attrs attributes, handle uint64) unix.Errno {
	c := t.chain(attrs.string(unix.NFTA_RULE_CHAIN))
	if c == nil {
		return unix.ENOENT
	}
	r := rule{handle: handle, exprs: attrs[unix.NFTA_RULE_EXPRESSIONS], userdata: attrs[unix.NFTA_RULE_USERDATA]}
	for _, e := range list(r.exprs) {
		name, data := e.string(unix.NFTA_EXPR_NAME), e.nested(unix.NFTA_EXPR_DATA)
		switch name {
		case "lookup":
			r.sets = append(r.sets, data.string(unix.NFTA_LOOKUP_SET))
		case "dynset":
			r.sets = append(r.sets, data.string(unix.NFTA_DYNSET_SET_NAME))
		case "objref":
			r.objects = append(r.objects, data.string(unix.NFTA_OBJREF_IMM_NAME))
		case "immediate":
			verdict := data.nested(unix.NFTA_IMMEDIATE_DATA).nested(unix.NFTA_DATA_VERDICT)
			if target := verdict.string(unix.NFTA_VERDICT_CHAIN); target != "" {
				r.chains = append(r.chains, target)
			}
		case "bitwise", "cmp", "counter", "ct", "fib", "hash", "masq", "meta", "nat", "numgen", "payload", "reject":
		default:
			return unix.ENOENT // no module has it
		}
	}
	for _, name := range r.sets {
		if t.set(name) == nil {
			return unix.ENOENT
		}
	}
	for _, name := range r.objects {
		if t.object(name) < 0 {
			return unix.ENOENT
		}
	}
	for _, name := range r.chains {
		if err := t.mayJump(name); err != 0 {
			return err
		}
	}
	c.rules = append(c.rules, r)
	return 0
}

func (t *table) mayJump(name string) unix.Errno {
	switch c := t.chain(name); {
	case c == nil:
		return unix.ENOENT
	case c.isBase:
		return unix.EOPNOTSUPP
	}
	return 0
}

// flush deletes all rules of a chain. Those of one handle are never deleted alone.
func (t *table) flush(attrs attributes) unix.Errno {
	c := t.chain(attrs.string(unix.NFTA_RULE_CHAIN))
	switch {
	case attrs.has(unix.NFTA_RULE_HANDLE):
		return unix.EOPNOTSUPP
	case c == nil:
		return unix.ENOENT
	}
	c.rules = nil
	return 0
}

func (t *table) newSet(attrs attributes, header netlink.HeaderFlags) unix.Errno {
	name := attrs.string(unix.NFTA_SET_NAME)
	if s := t.set(name); s != nil {
		same := func(attr uint16) bool { return bytes.Equal(s.attrs[attr], attrs[attr]) }
		if header&netlink.Excl != 0 || !same(unix.NFTA_SET_FLAGS) || !same(unix.NFTA_SET_KEY_LEN) ||
			!same(unix.NFTA_SET_DATA_LEN) {
			return unix.EEXIST
		}
		return 0
	}
	isMap := attrs.uint32(unix.NFTA_SET_FLAGS)&unix.NFT_SET_MAP != 0
	if name == "" || attrs.uint32(unix.NFTA_SET_KEY_LEN) == 0 || !attrs.has(unix.NFTA_SET_ID) ||
		isMap != attrs.has(unix.NFTA_SET_DATA_TYPE) {
		return unix.EINVAL
	}
	t.sets = append(t.sets, &set{name, attrs, attrs.uint32(unix.NFTA_SET_FLAGS), map[string]element{}})
	return 0
}

func (t *table) deleteSet(name string) unix.Errno {
	i := slices.IndexFunc(t.sets, func(s *set) bool { return s.name == name })
	switch {
	case i < 0:
		return unix.ENOENT
	case t.anyRule(func(r rule) bool { return slices.Contains(r.sets, name) }):
		return unix.EBUSY
	}
	t.sets = slices.Delete(t.sets, i, i+1)
	return 0
}

// object returns the place of a timeout policy, -1 if there is none.
func (t *table) object(name string) int {
	return slices.IndexFunc(t.objects, func(o attributes) bool { return o.string(unix.NFTA_OBJ_NAME) == name })
}

// newObject makes a timeout policy. One that is there can't change (nf_tables_updobj).
func (t *table) newObject(attrs attributes) unix.Errno {
	switch {
	case attrs.uint32(unix.NFTA_OBJ_TYPE) != unix.NFT_OBJECT_CT_TIMEOUT:
		return unix.EOPNOTSUPP
	case attrs.string(unix.NFTA_OBJ_NAME) == "" || !attrs.has(unix.NFTA_OBJ_DATA):
		return unix.EINVAL
	case t.object(attrs.string(unix.NFTA_OBJ_NAME)) >= 0:
		return unix.EOPNOTSUPP
	}
	t.objects = append(t.objects, attrs)
	return 0
}

func (t *table) deleteObject(name string) unix.Errno {
	i := t.object(name)
	switch {
	case i < 0:
		return unix.ENOENT
	case t.anyRule(func(r rule) bool { return slices.Contains(r.objects, name) }):
		return unix.EBUSY
	}
	t.objects = slices.Delete(t.objects, i, i+1)
	return 0
}
