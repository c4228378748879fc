package others

import (
	"bytes"
	"errors"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/internal/nfnl"
)

// Chain is a chain of any table, as the kernel lists it.
type Chain struct {
	Family      byte // NFPROTO_…
	Table, Name string
	Type        string // filter, nat or route; "" unless it is a base chain
	Hook        uint32
	Priority    int32
	Device      string // of a chain at the ingress of one device
	Drops       bool   // the policy is drop
	Uses        uint32 // the number of its rules and of the jumps to it
}

// Element is an element of a set.
type Element struct {
	Key, KeyEnd []byte // KeyEnd is nil unless the element is a range by itself
	End         bool   // the element is the first key behind a range
	Verdict     []byte // NFTA_DATA_VERDICT of a verdict map
}

// Lister lists tables, chains, rules and elements, in the network namespace of the thread that calls it first. Its
// connection lasts, because the end of a connection waits until the kernel has freed the objects of the batches
// before (nft_rcv_nl_event), for ten milliseconds and more in which no batch is taken. The zero value works. It is
// for one goroutine.
//
// The lists of google/nftables lack what doctor needs. Chains there have neither the number of their rules nor their
// device; rules lack each expression that the library does not know; and of a set with a million elements, all are read.
type Lister struct{ conn *netlink.Conn }

// Close ends the connection. The next call opens another one.
func (l *Lister) Close() {
	if l.conn != nil {
		_ = l.conn.Close()
		l.conn = nil
	}
}

// TableNames returns the names of all tables of a family. Without nf_tables there are none.
func (l *Lister) TableNames(f model.Family) (names []string, err error) {
	err = l.list(byte(fieldsOf(f).table), unix.NFT_MSG_GETTABLE, nil, func(attrs []byte) bool {
		names = append(names, nfnl.String(attrs, unix.NFTA_TABLE_NAME))
		return true
	})
	return names, err
}

// Chains returns all chains of a family (NFPROTO_…). Without nf_tables there are none.
func (l *Lister) Chains(family byte) (chains []Chain, err error) {
	err = l.list(family, unix.NFT_MSG_GETCHAIN, nil, func(attrs []byte) bool {
		chains = append(chains, readChain(family, attrs))
		return true
	})
	return chains, err
}

func readChain(family byte, attrs []byte) Chain {
	const hookDevices, firstDevice = 4, 1 // NFTA_HOOK_DEVS, NFTA_DEVICE_NAME
	hook := nfnl.First(attrs, unix.NFTA_CHAIN_HOOK)
	c := Chain{
		Family:   family,
		Table:    nfnl.String(attrs, unix.NFTA_CHAIN_TABLE),
		Name:     nfnl.String(attrs, unix.NFTA_CHAIN_NAME),
		Type:     nfnl.String(attrs, unix.NFTA_CHAIN_TYPE),
		Hook:     nfnl.Uint32(nfnl.First(hook, unix.NFTA_HOOK_HOOKNUM)),
		Priority: int32(nfnl.Uint32(nfnl.First(hook, unix.NFTA_HOOK_PRIORITY))),
		Device:   nfnl.String(hook, unix.NFTA_HOOK_DEV),
		Uses:     nfnl.Uint32(nfnl.First(attrs, unix.NFTA_CHAIN_USE)),
	}
	if policy := nfnl.First(attrs, unix.NFTA_CHAIN_POLICY); policy != nil {
		c.Drops = nfnl.Uint32(policy) == 0 // NF_DROP
	}
	if c.Device == "" {
		c.Device = nfnl.String(nfnl.First(hook, hookDevices), firstDevice)
	}
	return c
}

// Rules calls each with the expressions (NFTA_RULE_EXPRESSIONS) of the rules of a chain, in their
// order. What it passes on is valid only during the call.
func (l *Lister) Rules(of Chain, each func(expressions []byte)) error {
	names := []netlink.Attribute{
		{Type: unix.NFTA_RULE_TABLE, Data: []byte(of.Table + "\x00")},
		{Type: unix.NFTA_RULE_CHAIN, Data: []byte(of.Name + "\x00")},
	}
	return l.list(of.Family, unix.NFT_MSG_GETRULE, names, func(attrs []byte) bool {
		// A kernel that knows no filter by chain lists all rules of the table.
		if nfnl.String(attrs, unix.NFTA_RULE_CHAIN) == of.Name {
			each(nfnl.First(attrs, unix.NFTA_RULE_EXPRESSIONS))
		}
		return true
	})
}

// Elements returns the elements of a set, or none if there are more than most.
func (l *Lister) Elements(family byte, table, set string, most int) (list []Element, err error) {
	names := []netlink.Attribute{
		{Type: unix.NFTA_SET_ELEM_LIST_TABLE, Data: []byte(table + "\x00")},
		{Type: unix.NFTA_SET_ELEM_LIST_SET, Data: []byte(set + "\x00")},
	}
	err = l.list(family, unix.NFT_MSG_GETSETELEM, names, func(attrs []byte) bool {
		for e := range nfnl.Attributes(nfnl.First(attrs, unix.NFTA_SET_ELEM_LIST_ELEMENTS), unix.NFTA_LIST_ELEM) {
			list = append(list, readElement(e))
		}
		return len(list) <= most
	})
	if len(list) > most {
		list = nil
	}
	return list, err
}

func readElement(e []byte) Element {
	const keyEnd = 10 // NFTA_SET_ELEM_KEY_END
	value := func(attr uint16) []byte {
		return bytes.Clone(nfnl.First(nfnl.First(e, attr), unix.NFTA_DATA_VALUE))
	}
	return Element{
		Key: value(unix.NFTA_SET_ELEM_KEY), KeyEnd: value(keyEnd),
		End:     nfnl.Uint32(nfnl.First(e, unix.NFTA_SET_ELEM_FLAGS))&unix.NFT_SET_ELEM_INTERVAL_END != 0,
		Verdict: bytes.Clone(nfnl.First(nfnl.First(e, unix.NFTA_SET_ELEM_DATA), unix.NFTA_DATA_VERDICT)),
	}
}

// pieceSize makes the kernel answer with up to 32 KiB at a time, as much as it does (netlink_recvmsg:
// max_recvmsg_len). For each piece of a list, it walks the list from its beginning.
const pieceSize = 64 << 10

// list passes on the attributes of the objects of a kind, until more returns false.
func (l *Lister) list(family byte, kind uint16, names []netlink.Attribute, more func(attrs []byte) bool) (err error) {
	if l.conn == nil {
		l.conn, err = netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{MessageBufferSize: pieceSize})
	}
	if err == nil {
		err = l.dump(family, kind, names, more)
	}
	if err != nil {
		l.Close() // the rest of a list may be left
	}
	return listError(err)
}

func (l *Lister) dump(family byte, kind uint16, names []netlink.Attribute, more func(attrs []byte) bool) error {
	attrs, err := netlink.MarshalAttributes(names)
	if err != nil {
		return err
	}
	genmsg := []byte{family, unix.NFNETLINK_V0, 0, 0} // struct nfgenmsg
	_, err = l.conn.Send(netlink.Message{
		Header: netlink.Header{
			Type:  netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind),
			Flags: netlink.Request | netlink.Dump,
		},
		Data: append(genmsg, attrs...),
	})
	if err != nil {
		return err
	}
	for m, err := range l.conn.ReceiveIter() {
		if err != nil {
			return err
		}
		if len(m.Data) >= len(genmsg) && !more(m.Data[len(genmsg):]) {
			return nil // the library reads the rest
		}
	}
	return nil
}

// listError returns an error of a list: nil for that of a kernel without nf_tables, or without a family
// of it.
func listError(err error) error {
	switch {
	case errors.Is(err, unix.EPROTONOSUPPORT), nfnl.IsMissing(err):
		return nil
	case errors.Is(err, unix.EPERM):
		return nfnl.ErrNotPermitted
	}
	return err
}
