package compile

import (
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

func addrElement(a netip.Addr) nft.Element { return nft.Element{Key: string(nft.AppendAddr(nil, a))} }

// sharedFirst adds the elements that all Services need, and that another snapshot lacks: without Hairpin, an endpoint
// could not connect to itself.
func (r *Ruleset) sharedFirst(other *model.FamilySnapshot, add AddFunc) {
	if s := r.snapshot.Settings; s != other.Settings && s != nil {
		for _, a := range s.NodePortAddrs {
			add(nft.NodePortIPs, addrElement(a))
		}
	}
	for c := range r.snapshot.Hairpins.Changes(model.AddrKeys, other.Hairpins) {
		if c.InNew {
			add(nft.Hairpin, nft.Element{Key: string(nft.AppendAddr(nft.AppendAddr(nil, c.Key), c.Key))})
		}
	}
}

// sharedLast adds those by which packets are refused or dropped, but no cluster IP that a Service's unit has.
func (r *Ruleset) sharedLast(other *model.FamilySnapshot, inUnits map[netip.Addr]bool, add AddFunc) {
	for c := range r.snapshot.ServiceEndpoints.Changes(model.VIPKeys, other.ServiceEndpoints) {
		if c.InNew {
			add(nft.ServiceEndpoints, nft.Element{Key: nft.FrontendsOf(model.ClusterIP).Key(c.Key)})
		}
	}
	for c := range r.snapshot.ClusterIPs.Changes(model.AddrKeys, other.ClusterIPs) {
		if _, is := inUnits[c.Key]; c.InNew && !is {
			add(nft.ClusterIPs, addrElement(c.Key))
		}
	}
	if s := r.snapshot.Settings; s != other.Settings && s != nil {
		for _, p := range s.ServiceCIDRs {
			add(nft.ServiceCIDRs, nft.PrefixElement(p))
		}
	}
}

// unit compiles a version of a service port, with all that no other service port has, but without endpoints that the
// other version has in the same slots. Without a service port it is empty.
func (r *Ruleset) unit(v version) Unit {
	if v.ServicePort == nil {
		return Unit{Elements: func(AddFunc) {}}
	}
	a := affinityFor(v.ServicePort)
	chains := r.Options.affinityChains(a, r.snapshot.Settings)
	return Unit{a.sets(), chains, func(add AddFunc) { r.portElements(v, a, add) }, a.clients()}
}

func (r *Ruleset) portElements(v version, affinity affinity, add AddFunc) {
	sp := v.ServicePort
	comment := elementComment(sp.Name)
	for _, fe := range sp.Frontends {
		onNode := r.isOnNode(fe)
		of := nft.FrontendsOf(fe.Kind)
		key := of.Key(fe.VIP)
		add(of.Dispatch, nft.Element{Key: key, Verdict: verdict(of, sp, fe), Comment: comment})
		if r.Options.Counters {
			add(of.Counters, nft.Element{Key: key, Comment: comment})
		}
		if affinity.lists == nil && onNode { // the port may have the number of another Service's node port
			add(of.Remember, nft.Element{Key: key, Verdict: nft.Verdict{Kind: nft.Return}})
		}
		if fe.Restricted {
			add(nft.FirewallIPs, nft.Element{Key: key})
			for _, p := range sp.Allowed(fe) {
				add(nft.SourceRanges(fe.VIP.Protocol), nft.RangeElement(fe.VIP, p))
			}
		}
		if fe.Action != model.Forward && !fe.ShortCircuit {
			continue
		}
		if r.Options.FastPath && fe.VIP.Protocol != model.SCTP {
			add(of.FastPath, nft.Element{Key: key})
		}
		for _, l := range model.TrafficPolicies {
			if fe.Uses(l) {
				set := of.Endpoints[l]
				r.slotElements(key, v, fe, l, func(e nft.Element) { add(set, e) })
			}
		}
		switch fe.SourceNAT {
		case model.MasqueradeAlways:
			add(of.SourceNAT, nft.Element{Key: key, Verdict: goTo(masqueradeChain)})
		case model.MasqueradeNode:
			add(of.SourceNAT, nft.Element{Key: key, Verdict: goTo(masqueradeNode)})
		case model.MasqueradeOutside:
		}
		if affinity.lists != nil {
			add(of.Affinity, nft.Element{Key: key, Verdict: affinity.verdict(fe)})
			add(of.Remember, nft.Element{Key: key, Verdict: goTo(rememberOwn + affinity.name)})
		}
	}
	affinity.elements(add)
}

// isOnNode reports whether the address of a frontend is one of the node, where node ports are, too.
func (r *Ruleset) isOnNode(fe model.Frontend) bool {
	if fe.Kind == model.ClusterIP || fe.Kind == model.NodePort || r.snapshot.Settings == nil {
		return false
	}
	_, onNode := slices.BinarySearchFunc(r.snapshot.NodePortAddrs, fe.VIP.Addr, netip.Addr.Compare)
	return onNode
}

// maxComment is the longest comment that nft takes (libnftnl: NFTNL_UDATA_COMMENT_MAXLEN
// with its final zero). Only names of maximal length are longer.
const maxComment = 127

func elementComment(n model.ServicePortName) string {
	s := n.String()
	if len(s) > maxComment {
		return s[:maxComment-3] + "..."
	}
	return s
}
