package others

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/internal/nfnl"
)

// list returns what decode makes of the objects of all programs that a message lists; without nf_tables, of none. It
// starts again if the objects changed meanwhile, since the kernel may have left some out. The lists of google/nftables
// are not for these: a rule that it can't decode makes it panic, or return none of the chain's rules, and it leaves out
// expressions that it does not know.
func list[T any](kind uint16, of Place, decode func(family byte, attrs []byte) T) ([]T, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open netlink connection: %w", err)
	}
	defer func() { _ = c.Close() }()
	attrs := netlink.NewAttributeEncoder()
	for kind, name := range map[uint16]string{unix.NFTA_RULE_TABLE: of.Table, unix.NFTA_RULE_CHAIN: of.Chain} {
		if name != "" {
			attrs.String(kind, name)
		}
	}
	names, err := attrs.Encode()
	if err != nil {
		return nil, err
	}
	m := netlink.Message{
		Header: netlink.Header{
			Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind), Flags: netlink.Request | netlink.Dump,
		},
		Data: append([]byte{familyNumber(of.Family), unix.NFNETLINK_V0, 0, 0}, names...),
	}
	const tries = 5
	for range tries {
		answer, err := c.Execute(m)
		switch {
		case nfnl.IsMissing(err):
			return nil, nil
		case errors.Is(err, unix.EPERM):
			return nil, nfnl.ErrNotPermitted
		case err != nil:
			return nil, fmt.Errorf("list what nf_tables has: %w", err)
		}
		interrupted, all := false, []T(nil)
		for _, m := range answer {
			interrupted = interrupted || m.Header.Flags&netlink.DumpInterrupted != 0
			if len(m.Data) >= nfnl.HeaderSize {
				all = append(all, decode(m.Data[0], m.Data[nfnl.HeaderSize:]))
			}
		}
		if !interrupted {
			return all, nil
		}
	}
	return nil, fmt.Errorf("rules changed meanwhile, in each of %d tries: %w", tries, unix.EINTR)
}

// Table is one of anybody's. The name of its chain is empty.
type Table struct {
	Place
	Owned bool // it belongs to a process that runs
}

func decodeTable(family byte, b []byte) Table {
	const ownedFlag = 2 // NFT_TABLE_F_OWNER
	name, flags := nfnl.String(b, unix.NFTA_TABLE_NAME), nfnl.Uint32(nfnl.First(b, unix.NFTA_TABLE_FLAGS))
	return Table{Place{Family: FamilyName(family), Table: name}, flags&ownedFlag != 0}
}

// Tables returns all tables.
func Tables() ([]Table, error) { return list(unix.NFT_MSG_GETTABLE, Place{}, decodeTable) }

// TableNames returns the names of all tables of a family.
func TableNames(f model.Family) (names []string, err error) {
	tables, err := list(unix.NFT_MSG_GETTABLE, Place{Family: nft.FamilyWord(f)}, decodeTable)
	for _, t := range tables {
		names = append(names, t.Table)
	}
	return names, err
}

// Owned reports whether a table of a name belongs to a process that runs.
func Owned(name string) (bool, error) {
	tables, err := Tables()
	return slices.ContainsFunc(tables, func(t Table) bool { return t.Table == name && t.Owned }), err
}

// Base is a chain that the kernel calls.
type Base struct {
	Place    Place
	Hook     Hook
	Priority int32
	Drops    bool // by its policy
}

// chain is one of anybody's, without a hook if the kernel does not call it.
type chain struct {
	Base
	uses uint32 // its rules, and the rules and elements that lead to it
}

const drop = 0 // NF_DROP

func decodeChain(family byte, b []byte) (c chain) {
	c.Place = Place{FamilyName(family), nfnl.String(b, unix.NFTA_CHAIN_TABLE), nfnl.String(b, unix.NFTA_CHAIN_NAME)}
	c.uses = nfnl.Uint32(nfnl.First(b, unix.NFTA_CHAIN_USE))
	if hook := nfnl.First(b, unix.NFTA_CHAIN_HOOK); hook != nil {
		number := nfnl.Uint32(nfnl.First(hook, unix.NFTA_HOOK_HOOKNUM))
		for _, h := range Hooks {
			if uint32(h.Number) == number {
				c.Hook = h.Hook
			}
		}
		c.Priority = int32(nfnl.Uint32(nfnl.First(hook, unix.NFTA_HOOK_PRIORITY)))
	}
	policy := nfnl.First(b, unix.NFTA_CHAIN_POLICY)
	c.Drops = policy != nil && nfnl.Uint32(policy) == drop
	return c
}
