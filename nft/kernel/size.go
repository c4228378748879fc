package kernel

import (
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// What google/nftables makes of its calls, it keeps to itself until it sends it. How large
// that is must be known before, for the socket's buffer, so it is computed.

// emptyMessage is a netlink header and a struct nfgenmsg.
const emptyMessage = unix.SizeofNlMsghdr + 4

// attr is the size of an attribute with so many bytes in it.
func attr(n int) int { return (unix.SizeofNlAttr + n + unix.NLA_ALIGNTO - 1) &^ (unix.NLA_ALIGNTO - 1) }

func stringSize(s string) int { return attr(len(s) + 1) }

func messagesSize(list []netlink.Message) int {
	n := 0
	for _, m := range list {
		n += unix.SizeofNlMsghdr + len(m.Data)
	}
	return n
}

// nameSize is the size of a message that only names an object of our table.
func nameSize(name string) int {
	return emptyMessage + stringSize(nft.TableName) + stringSize(name)
}

func chainSize(c *nftables.Chain) int {
	n := nameSize(c.Name)
	if c.Hooknum != nil {
		n += attr(2*attr(4)) + attr(4) + stringSize(string(c.Type)) // hook and priority, policy, type
	}
	return n
}

func ruleSize(f model.Family, chain string, exprs []expr.Any) (int, error) {
	list := 0
	for _, e := range exprs {
		data, err := expr.Marshal(byte(tableFamily(f)), e)
		if err != nil {
			return 0, err
		}
		list += attr(len(data))
	}
	return nameSize(chain) + attr(4) + attr(list), nil // with an ID
}

func elementsSize(set string, list []nftables.SetElement) int {
	n := 0
	for i := range list {
		n += attr(elementSize(&list[i]))
	}
	return nameSize(set) + attr(4) + attr(n) // with an ID
}

func elementSize(e *nftables.SetElement) int {
	n := attr(attr(len(e.Key)))
	if len(e.KeyEnd) > 0 {
		n += attr(attr(len(e.KeyEnd)))
	}
	if e.IntervalEnd {
		n += attr(4)
	}
	switch {
	case e.VerdictData != nil && e.VerdictData.Chain != "":
		n += attr(attr(attr(4) + stringSize(e.VerdictData.Chain)))
	case e.VerdictData != nil:
		n += attr(attr(attr(4)))
	case len(e.Val) > 0:
		n += attr(attr(len(e.Val)))
	}
	const userdataHeader = 2
	userdata := 0
	if e.Comment != "" {
		userdata += userdataHeader + len(e.Comment) + 1
	}
	if e.IntervalOpen {
		userdata += userdataHeader + 4
	}
	if userdata > 0 {
		n += attr(userdata)
	}
	if e.Counter != nil {
		n += attr(stringSize("counter") + attr(2*attr(8))) // bytes and packets
	}
	return n
}
