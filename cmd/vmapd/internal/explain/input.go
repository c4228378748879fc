package explain

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/model"
)

// Input is a connection, with the objects and the configuration that decide about it.
type Input struct {
	Builder *model.Builder // of all objects
	Config  model.Config   // of the builder
	Objects Objects
	// Names has the names of pods, and selectors; nil: none are known.
	Names *names.Directory
	// Client, Server and Notes are from a names.Answer.
	Client, Server string
	Notes          []string
	// Snapshot decides; nil: the Builder's.
	Snapshot *model.Snapshot
	// ByListeners: a listener of vmapd's serves every Service, and makes connections of its own.
	ByListeners bool
	// All: the lists are complete.
	All bool

	model.Connection // Explain sets Node if the source is the node's
}

// NodeAddress returns the source of a connection that this node makes: a loopback address if the
// destination is one, and otherwise the node's primary address.
func (in Input) NodeAddress() (netip.Addr, error) {
	family := model.FamilyOf(in.Dest.Addr())
	if in.Dest.Addr().IsLoopback() {
		return family.Loopback(), nil
	}
	for _, n := range in.Objects.Nodes {
		if n.Name != in.Config.NodeName {
			continue
		}
		for _, text := range n.Addresses {
			if a, err := model.ParseAddr(text); err == nil && model.FamilyOf(a) == family {
				return a, nil
			}
		}
		return netip.Addr{}, fmt.Errorf("the Node %s has no %v address", n.Name, family)
	}
	return netip.Addr{}, fmt.Errorf("there is no Node %s, so its address is not known", in.Config.NodeName)
}

// Objects are all objects, also those that the proxy ignores.
type Objects struct {
	Services       []model.Service
	EndpointSlices []model.EndpointSlice
	Nodes          []model.Node
	ServiceCIDRs   []model.ServiceCIDR
}

// Builder returns a Builder with the objects.
func (o Objects) Builder(c model.Config) *model.Builder {
	b := model.NewBuilder(c)
	for _, n := range o.Nodes {
		b.SetNode(n)
	}
	for _, c := range o.ServiceCIDRs {
		b.SetServiceCIDR(c)
	}
	for _, s := range o.Services {
		b.SetService(s)
	}
	for _, s := range o.EndpointSlices {
		b.SetEndpointSlice(s)
	}
	return b
}

// nodeWith returns the Node, other than ours, that has an address.
func (x *explainer) nodeWith(a netip.Addr) string {
	for _, n := range x.in.Objects.Nodes {
		if n.Name != x.in.Config.NodeName && hasAddr(n.Addresses, a) {
			return n.Name
		}
	}
	return ""
}

// eachEndpoint calls found for each endpoint that has an address, in any slice. If one does not terminate, it leaves
// out those that do: they are of an older pod.
func (x *explainer) eachEndpoint(a netip.Addr, found func(model.EndpointSlice, model.SliceEndpoint)) {
	for _, terminating := range []bool{false, true} {
		some := false
		for _, s := range x.in.Objects.EndpointSlices {
			for _, e := range s.Endpoints {
				if hasFirst(e, a) && isTerminating(e) == terminating {
					found(s, e)
					some = true
				}
			}
		}
		if some {
			return
		}
	}
}

func isAddr(text string, a netip.Addr) bool {
	b, err := model.ParseAddr(text)
	return err == nil && b == a
}

func hasAddr(list []string, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(s string) bool { return isAddr(s, a) })
}

// hasFirst reports whether an endpoint has an address: the first one, as others are not used.
func hasFirst(e model.SliceEndpoint, a netip.Addr) bool {
	return len(e.Addresses) > 0 && isAddr(e.Addresses[0], a)
}
