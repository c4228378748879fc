package compile

import (
	"slices"

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
	// each: see [nft.FastPath].
	FastPath bool
}

// LayoutSets returns the sets and maps that all service ports share, sorted by name.
func (o Options) LayoutSets() []nft.Set {
	return slices.DeleteFunc(nft.SharedSets(), func(s nft.Set) bool {
		return !o.Counters && s.Counter || !o.FastPath && (s.Name == nft.FastPathIPs || s.Name == nft.FastPathNodePorts)
	})
}
