package kernel

import (
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// chainMessage makes a chain, without its rules.
func chainMessage(f model.Family, table string, c nft.Chain) (netlink.Message, error) {
	attrs := []netlink.Attribute{
		stringAttr(unix.NFTA_CHAIN_TABLE, table),
		stringAttr(unix.NFTA_CHAIN_NAME, c.Name),
	}
	if c.Hook != nft.NoHook {
		hook, err := netlink.MarshalAttributes([]netlink.Attribute{
			uint32Attr(unix.NFTA_HOOK_HOOKNUM, uint32(*hookNumber(c.Hook))),
			uint32Attr(unix.NFTA_HOOK_PRIORITY, uint32(c.Prio)),
		})
		if err != nil {
			return netlink.Message{}, err
		}
		chainType := nftables.ChainTypeNAT
		if c.Filter {
			chainType = nftables.ChainTypeFilter
		}
		attrs = append(attrs,
			netlink.Attribute{Type: unix.NFTA_CHAIN_HOOK | unix.NLA_F_NESTED, Data: hook},
			uint32Attr(unix.NFTA_CHAIN_POLICY, uint32(nftables.ChainPolicyAccept)),
			stringAttr(unix.NFTA_CHAIN_TYPE, string(chainType)))
	}
	return message(unix.NFT_MSG_NEWCHAIN, netlink.Create, f, attrs)
}

func deleteChainMessage(f model.Family, name string) (netlink.Message, error) {
	return message(unix.NFT_MSG_DELCHAIN, 0, f, []netlink.Attribute{
		stringAttr(unix.NFTA_CHAIN_TABLE, nft.TableName),
		stringAttr(unix.NFTA_CHAIN_NAME, name),
	})
}

// flushChainMessage deletes all rules of a chain.
func flushChainMessage(f model.Family, table, name string) (netlink.Message, error) {
	return message(unix.NFT_MSG_DELRULE, 0, f, []netlink.Attribute{
		stringAttr(unix.NFTA_RULE_TABLE, table),
		stringAttr(unix.NFTA_RULE_CHAIN, name),
	})
}

// ruleMessage appends a rule to a chain.
func ruleMessage(f model.Family, table, chain string, r nft.Rule) (netlink.Message, error) {
	exprs, err := encodeRule(f, r)
	if err != nil {
		return netlink.Message{}, err
	}
	list := make([]netlink.Attribute, 0, len(exprs))
	for _, e := range exprs {
		data, err := expr.Marshal(byte(tableFamily(f)), e)
		if err != nil {
			return netlink.Message{}, err
		}
		list = append(list, netlink.Attribute{Type: unix.NFTA_LIST_ELEM | unix.NLA_F_NESTED, Data: data})
	}
	nested, err := netlink.MarshalAttributes(list)
	if err != nil {
		return netlink.Message{}, err
	}
	return message(unix.NFT_MSG_NEWRULE, netlink.Create|netlink.Append, f, []netlink.Attribute{
		stringAttr(unix.NFTA_RULE_TABLE, table),
		stringAttr(unix.NFTA_RULE_CHAIN, chain),
		{Type: unix.NFTA_RULE_EXPRESSIONS | unix.NLA_F_NESTED, Data: nested},
	})
}

func hookNumber(h nft.Hook) *nftables.ChainHook {
	switch h {
	case nft.Prerouting:
		return nftables.ChainHookPrerouting
	case nft.Output:
		return nftables.ChainHookOutput
	case nft.Postrouting:
		return nftables.ChainHookPostrouting
	case nft.Input:
		return nftables.ChainHookInput
	case nft.Forward:
		return nftables.ChainHookForward
	case nft.NoHook:
	}
	return nil
}
