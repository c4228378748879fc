package compile

import (
	"slices"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// Options turn on parts of a ruleset that do not affect where packets go.
type Options struct {
	// Counters counts new connections to each frontend, in the sets ServiceCounters and
	// NodePortCounters. A connection is counted when its first packet is looked up, whether it
	// is then sent on, rejected or dropped. A packet that is repeated for want of an answer
	// counts again. A packet that the source ranges drop does not count.
	//
	// RefusedCounters and NodePortRefused count connections to frontends that are refused now. A frontend
	// that gets an endpoint has no such element any more; it begins at 0 when the last endpoint goes.
	//
	// Ports beyond model.Budgets.Counters are not counted.
	//
	// Each element takes 16 bytes in the kernel for each possible CPU, besides its key and
	// comment.
	Counters bool

	// FastPath lets the packets of Service connections take the fast path, except the first ones of
	// each: see [FastPath].
	FastPath bool
}

// LayoutSets returns the sets and maps that all service ports share, sorted by name.
func (o Options) LayoutSets() []nft.Set {
	return slices.DeleteFunc(nft.SharedSets(), func(s nft.Set) bool {
		return !o.Counters && s.Counter || !o.FastPath && (s.Name == nft.FastPathIPs || s.Name == nft.FastPathNodePorts)
	})
}

// CounterOf returns the set and the key of the element that counts connections to a frontend.
func CounterOf(fe model.Frontend) (set, key string) {
	s := nft.FrontendsOf(fe.Kind)
	return s.Counters, s.Key(fe.VIP)
}

// counterElements adds the elements that count connections to one service port.
func (o Options) counterElements(sp *model.ServicePort, add func(set string, e nft.Element)) {
	if !o.Counters || sp.Uncounted {
		return
	}
	for _, fe := range sp.Frontends {
		set, key := CounterOf(fe)
		e := nft.Element{Key: key, Comment: elementComment(sp.Name)}
		add(set, e)
		if set := RefusedOf(fe); set != "" {
			add(set, e)
		}
	}
}

// RefusedOf returns the set that counts connections to a frontend that are refused, or "" if they are not.
// Its key is that of CounterOf.
func RefusedOf(fe model.Frontend) string {
	if fe.Action != model.Reject {
		return ""
	}
	return nft.FrontendsOf(fe.Kind).Refused
}
