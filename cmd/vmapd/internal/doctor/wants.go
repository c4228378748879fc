package doctor

import (
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/model"
)

// WantsOf returns what the node must meet, without the names of the node and the backend. The snapshot
// is nil before the first lists are read.
func WantsOf(c nodesetup.Conntrack, traffic model.Config, s *model.Snapshot) Wants {
	w := Wants{
		Conntrack: c, MasqueradeAll: traffic.MasqueradeAll, PodRanges: traffic.LocalPods.ClusterCIDRs,
	}
	if s == nil {
		return w
	}
	w.PodRanges = slices.Concat(w.PodRanges, s.NodeObject().PodCIDRs)
	for _, f := range model.Families {
		family := s.Family(f)
		w.ServicePorts[f] = family.NumServicePorts()
		w.LocalPods = append(w.LocalPods, localPods(family)...)
	}
	return w
}

// fewPods is the number of endpoints on this node that doctor looks at, of each family.
const fewPods = 3

// localPods returns a few endpoints on this node.
func localPods(s *model.FamilySnapshot) (pods []netip.Addr) {
	for sp := range s.ServicePorts() {
		for _, e := range sp.Endpoints {
			if len(pods) == fewPods {
				return pods
			}
			if a := e.Addr.Addr(); e.Local && !slices.Contains(pods, a) && !slices.Contains(s.NodeAddrs, a) {
				pods = append(pods, a)
			}
		}
	}
	return pods
}
