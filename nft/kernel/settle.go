package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// settleTries bounds how often a map that packets change meanwhile is read again.
const settleTries = 5

// settle brings the clients that packets noted in line with what was just programmed. It
// costs what it costs to read the maps, and writes only what must change.
func (c *conn) settle(f model.Family, list []nft.Settle) error {
	var errs []error
	for _, s := range list {
		if err := c.settleMap(f, s); err != nil {
			errs = append(errs, fmt.Errorf("settle map %s: %w", s.Map, err))
		}
	}
	return errors.Join(errs...)
}

func (c *conn) settleMap(f model.Family, s nft.Settle) error {
	for try := 1; ; try++ {
		msgs, err := c.settleMessages(f, s)
		if err != nil || len(msgs) == 0 {
			return err
		}
		err = c.exchange(msgs, true)
		// An element may time out between being read and being deleted.
		if !errors.Is(err, unix.ENOENT) || try == settleTries {
			return err
		}
	}
}

func (c *conn) settleMessages(f model.Family, s nft.Settle) ([]netlink.Message, error) {
	table := &nftables.Table{Name: nft.TableName, Family: tableFamily(f)}
	decl := nft.DeclarationOf(s.Map)
	elements, err := c.lib.GetSetElements(&nftables.Set{Table: table, Name: s.Map, KeyType: keyType(f), IsMap: true})
	if err != nil {
		return nil, err
	}
	var forget, renew []nftables.SetElement
	for _, e := range elements {
		left, ok := timeLeft(e, s)
		switch {
		case !ok:
			forget = append(forget, e)
		case left != e.Expires:
			forget = append(forget, e)
			e.Timeout, e.Expires = s.Timeout.Timeout, left
			renew = append(renew, e)
		}
	}
	var msgs []netlink.Message
	for _, part := range []struct {
		msgType int
		list    []nftables.SetElement
	}{{unix.NFT_MSG_DELSETELEM, forget}, {unix.NFT_MSG_NEWSETELEM, renew}} {
		for chunk := range slices.Chunk(part.list, elementsPerMessage) {
			m, err := elementsMessage(part.msgType, f, decl.Name, chunk)
			if err != nil {
				return nil, err
			}
			msgs = append(msgs, m)
		}
	}
	return msgs, nil
}

func keyType(f model.Family) nftables.SetDatatype {
	if f == model.IPv6 {
		return nftables.TypeIP6Addr
	}
	return nftables.TypeIPAddr
}

// timeLeft returns how much longer a client is remembered, or false if it is not.
func timeLeft(e nftables.SetElement, s nft.Settle) (time.Duration, bool) {
	if !s.Keep[string(e.Val)] {
		return 0, false
	}
	if s.Timeout == nil || s.Timeout.Timeout == e.Timeout {
		return e.Expires, true
	}
	left := s.Timeout.Timeout - (e.Timeout - e.Expires)
	return left, left > 0
}

// elementsMessage adds or deletes elements of a dynamic map: google/nftables can't say
// when an element expires.
func elementsMessage(msgType int, f model.Family, set string, list []nftables.SetElement) (netlink.Message, error) {
	items := make([]netlink.Attribute, 0, len(list))
	for _, e := range list {
		key, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: unix.NFTA_DATA_VALUE, Data: e.Key}})
		if err != nil {
			return netlink.Message{}, err
		}
		attrs := []netlink.Attribute{{Type: unix.NFTA_SET_ELEM_KEY | unix.NLA_F_NESTED, Data: key}}
		if msgType == unix.NFT_MSG_NEWSETELEM {
			val, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: unix.NFTA_DATA_VALUE, Data: e.Val}})
			if err != nil {
				return netlink.Message{}, err
			}
			attrs = append(attrs,
				netlink.Attribute{Type: unix.NFTA_SET_ELEM_DATA | unix.NLA_F_NESTED, Data: val},
				millisecondsAttr(unix.NFTA_SET_ELEM_TIMEOUT, e.Timeout),
				millisecondsAttr(unix.NFTA_SET_ELEM_EXPIRATION, e.Expires))
		}
		item, err := netlink.MarshalAttributes(attrs)
		if err != nil {
			return netlink.Message{}, err
		}
		items = append(items, netlink.Attribute{Type: unix.NFTA_LIST_ELEM | unix.NLA_F_NESTED, Data: item})
	}
	nested, err := netlink.MarshalAttributes(items)
	if err != nil {
		return netlink.Message{}, err
	}
	return message(msgType, netlink.Create, f, []netlink.Attribute{
		stringAttr(unix.NFTA_SET_ELEM_LIST_TABLE, nft.TableName),
		stringAttr(unix.NFTA_SET_ELEM_LIST_SET, set),
		{Type: unix.NFTA_SET_ELEM_LIST_ELEMENTS | unix.NLA_F_NESTED, Data: nested},
	})
}

func millisecondsAttr(attr uint16, d time.Duration) netlink.Attribute {
	return netlink.Attribute{Type: attr, Data: binary.BigEndian.AppendUint64(nil, uint64(d.Milliseconds()))}
}
