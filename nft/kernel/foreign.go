package kernel

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/nft/internal/nfnl"
)

// ForeignChain is a chain of any table, as the kernel lists it.
type ForeignChain struct {
	Family      byte // NFPROTO_…
	Table, Name string
	Type        string // filter, nat or route; "" unless it is a base chain
	Hook        uint32
	Priority    int32
	Device      string // of a chain at the ingress of one device
	Drops       bool   // the policy is drop
	Uses        uint32 // the number of its rules and of the jumps to it
}

// ForeignElement is an element of a set.
type ForeignElement struct {
	Key, KeyEnd []byte // KeyEnd is nil unless the element is a range by itself
	End         bool   // the element is the first key behind a range
	Verdict     []byte // NFTA_DATA_VERDICT of a verdict map
}

// Chains returns all chains of a family (NFPROTO_…). Without nf_tables there are none.
func (l *Lister) Chains(family byte) (chains []ForeignChain, err error) {
	err = l.on(func(c *conn) error {
		return c.dumpForeign(family, unix.NFT_MSG_GETCHAIN, nil, func(attrs []byte) error {
			chains = append(chains, readForeignChain(family, attrs))
			return nil
		})
	})
	return chains, err
}

func readForeignChain(family byte, attrs []byte) ForeignChain {
	const hookDevices, firstDevice = 4, 1 // NFTA_HOOK_DEVS, NFTA_DEVICE_NAME
	hook := nfnl.First(attrs, unix.NFTA_CHAIN_HOOK)
	c := ForeignChain{
		Family: family, Table: string(nfnl.Text(nfnl.First(attrs, unix.NFTA_CHAIN_TABLE))), Name: string(nfnl.Text(nfnl.First(attrs, unix.NFTA_CHAIN_NAME))),
		Type: string(nfnl.Text(nfnl.First(attrs, unix.NFTA_CHAIN_TYPE))), Uses: nfnl.Uint32(nfnl.First(attrs, unix.NFTA_CHAIN_USE)),
		Hook: nfnl.Uint32(nfnl.First(hook, unix.NFTA_HOOK_HOOKNUM)), Priority: int32(nfnl.Uint32(nfnl.First(hook, unix.NFTA_HOOK_PRIORITY))),
		Device: string(nfnl.Text(nfnl.First(hook, unix.NFTA_HOOK_DEV))),
	}
	if policy := nfnl.First(attrs, unix.NFTA_CHAIN_POLICY); policy != nil {
		c.Drops = nfnl.Uint32(policy) == 0 // NF_DROP
	}
	if c.Device == "" {
		c.Device = string(nfnl.Text(nfnl.First(nfnl.First(hook, hookDevices), firstDevice)))
	}
	return c
}

// Rules calls each with the expressions (NFTA_RULE_EXPRESSIONS) of the rules of a chain, in their
// order. What it passes on is valid only during the call.
func (l *Lister) Rules(of ForeignChain, each func(expressions []byte)) error {
	return l.on(func(c *conn) error {
		names := func(m *messages) {
			m.string(unix.NFTA_RULE_TABLE, of.Table)
			m.string(unix.NFTA_RULE_CHAIN, of.Name)
		}
		return c.dumpForeign(of.Family, unix.NFT_MSG_GETRULE, names, func(attrs []byte) error {
			// A kernel that knows no filter by chain lists all rules of the table.
			if string(nfnl.Text(nfnl.First(attrs, unix.NFTA_RULE_CHAIN))) == of.Name {
				each(nfnl.First(attrs, unix.NFTA_RULE_EXPRESSIONS))
			}
			return nil
		})
	})
}

// Elements returns the elements of a set, or none if there are more than most.
func (l *Lister) Elements(family byte, table, set string, most int) (list []ForeignElement, err error) {
	err = l.on(func(c *conn) error {
		names := func(m *messages) {
			m.string(unix.NFTA_SET_ELEM_LIST_TABLE, table)
			m.string(unix.NFTA_SET_ELEM_LIST_SET, set)
		}
		err := c.dumpForeign(family, unix.NFT_MSG_GETSETELEM, names, func(attrs []byte) error {
			for e := range nfnl.Attributes(nfnl.First(attrs, unix.NFTA_SET_ELEM_LIST_ELEMENTS), unix.NFTA_LIST_ELEM) {
				if len(list) >= most {
					return errEnough
				}
				list = append(list, readForeignElement(e))
			}
			return nil
		})
		if content, ok := errors.AsType[*contentError](err); ok && errors.Is(content, errEnough) || errors.Is(err, errEnough) {
			list = nil
			return c.drain()
		}
		return err
	})
	return list, err
}

func readForeignElement(e []byte) ForeignElement {
	value := func(attr uint16) []byte { return bytes.Clone(nfnl.First(nfnl.First(e, attr), unix.NFTA_DATA_VALUE)) }
	return ForeignElement{
		Key: value(unix.NFTA_SET_ELEM_KEY), KeyEnd: value(setElemKeyEnd),
		End:     nfnl.Uint32(nfnl.First(e, unix.NFTA_SET_ELEM_FLAGS))&unix.NFT_SET_ELEM_INTERVAL_END != 0,
		Verdict: bytes.Clone(nfnl.First(nfnl.First(e, unix.NFTA_SET_ELEM_DATA), unix.NFTA_DATA_VERDICT)),
	}
}

// dumpForeign passes on the attributes of all objects of a kind and a family.
func (c *conn) dumpForeign(family byte, msgType uint16, names func(*messages), each func(attrs []byte) error) error {
	m := messages{port: c.socket.Port()}
	at := m.header(unix.NFNL_SUBSYS_NFTABLES<<8|msgType, unix.NLM_F_DUMP, family, 0)
	if names != nil {
		names(&m)
	}
	m.end(at)
	err := c.exchange(&m, each)
	if nfnl.IsMissing(err) {
		return nil
	}
	return err
}
