package nft

import (
	"slices"

	"github.com/vmapd/vmapd/model"
)

// The first packet of each connection passes the chains services and postrouting. They have no
// rules for features that nothing in the cluster uses: even in an empty set, a rule looks up a key.
//
// The rules depend on the snapshot alone, not on earlier ones: they come in the batch of the first
// frontend that needs them, and go in that of the last one. So a restart writes nothing. Of a batch
// that is split, the first piece has the rules that come, and the last one lacks those that go,
// because a rule whose set is empty lets packets pass. Only a chain in which some come and others go
// changes in one batch with all Services.
//
// A feature is one of these.
type feature uint8

const (
	withAffinity  feature = iota // service ports with session affinity
	withNodePorts                // frontends that are node ports
	withHairpins                 // endpoints on this node

	// For each protocol, in the order of protocols:
	withSourceRanges                                        // frontends for some sources only
	withSourceNAT         = withSourceRanges + numProtocols // frontends with an address that masquerade
	withNodePortSourceNAT = withSourceNAT + numProtocols    // node ports that do
	numFeatures           = withNodePortSourceNAT + numProtocols

	numProtocols = feature(len(protocols))
)

// features is a set of them.
type features uint16

func (f features) has(one feature) bool { return f&(1<<one) != 0 }

// protocols returns the protocols that have a feature.
func (f features) protocols(one feature) []model.Protocol {
	var list []model.Protocol
	for i, p := range protocols {
		if f.has(one + feature(i)) {
			list = append(list, p)
		}
	}
	return list
}

// usage counts the frontends that use a feature.
type usage [numFeatures]int

// count adds a service port by times 1, or removes it by -1.
func (u *usage) count(sp *model.ServicePort, by int) {
	if sp == nil {
		return
	}
	if affinityFor(sp) != nil {
		u[withAffinity] += by
	}
	for _, fe := range sp.Frontends {
		protocol := feature(slices.Index(protocols[:], fe.VIP.Protocol))
		if fe.Restricted {
			u[withSourceRanges+protocol] += by
		}
		sourceNAT := withSourceNAT
		if fe.Kind == model.NodePort {
			u[withNodePorts] += by
			sourceNAT = withNodePortSourceNAT
		}
		if fe.SourceNAT != model.MasqueradeOutside {
			u[sourceNAT+protocol] += by
		}
	}
}

// features returns those that are used with a snapshot's service ports, which were counted.
func (u *usage) features(s *model.FamilySnapshot) features {
	var f features
	for one, n := range u {
		if n > 0 {
			f |= 1 << one
		}
	}
	for range s.Hairpins() {
		return f | 1<<withHairpins
	}
	return f
}

// featuresOf counts all service ports of a snapshot.
func featuresOf(s *model.FamilySnapshot) features {
	var u usage
	for sp := range s.ServicePorts() {
		u.count(sp, 1)
	}
	return u.features(s)
}

// hasOptional reports whether rules are others with some of features added.
func hasOptional(f model.Family, others, rules []Rule) bool {
	for _, r := range rules {
		if len(others) > 0 && others[0].Text(f) == r.Text(f) {
			others = others[1:]
		} else if !isOptional(r) {
			return false
		}
	}
	return len(others) == 0
}

// isOptional reports whether a rule is one of a feature: without elements in its set it does nothing.
func isOptional(r Rule) bool {
	for _, s := range r {
		set := ""
		switch s := s.(type) {
		case InSet:
			set = s.Set
		case VerdictMap:
			set = s.Map
		}
		switch set {
		case FirewallIPs, AffinityIPs, AffinityNodePorts, ServiceNodePorts, NodePortCounters, SourceNAT, NodePortSourceNAT, Hairpin:
			return true
		}
	}
	return false
}
