package explain

import (
	"fmt"
	"net/netip"

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
	// All: the text has everything, also what rarely matters.
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
