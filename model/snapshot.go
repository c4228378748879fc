package model

import (
	"iter"
	"net/netip"

	"github.com/vmapd/vmapd/model/persist"
)

// Snapshot is the complete desired state of one node at one instant. It never changes, and shares its unchanged parts
// with the snapshot before, so that the cost of finding a difference depends on its size.
type Snapshot struct {
	families     [len(Families)]FamilySnapshot
	Problems     []Problem // the current ones of all objects, sorted by object
	Node         NodeState
	NodeObject   NodeObject
	HealthChecks persist.Map[NamespacedName, HealthCheck] // by Service
}

// Family returns the part of the snapshot that concerns one IP family. The two
// share nothing and are programmed independently.
func (s *Snapshot) Family(f Family) *FamilySnapshot { return &s.families[f] }

// FamilySnapshot is the desired state for one IP family.
type FamilySnapshot struct {
	Family Family
	*Settings

	// ClusterIPs has the cluster IP of every Service. Connections to other ports of it than the Service's are rejected.
	ClusterIPs persist.Map[netip.Addr, struct{}]
	// Hairpins has the address of each endpoint that is, or may be, on this node: a connection from such an address to
	// itself through a Service must be masqueraded, or the reply would not pass the node.
	Hairpins persist.Map[netip.Addr, struct{}]
	// ServiceEndpoints has the address, protocol and port of each endpoint if Settings.DropInvalid is set; else it is
	// empty.
	ServiceEndpoints persist.Map[VIP, struct{}]

	// NoLocal counts the service ports with a policy Local that finds no endpoint on this node though others exist.
	NoLocal NoLocal
	// Unserved is the number of endpoints that get no connections because their Service exceeds Budgets.Endpoints. An
	// endpoint in two slices counts twice.
	Unserved int

	ports persist.Map[*ServicePortName, *ServicePort] // by the name in the ServicePort
}

// NoLocal has the numbers of service ports for which ServicePort.NoLocalEndpoints reports true.
type NoLocal struct{ Internal, External int }

func (n *NoLocal) count(sp *ServicePort, by int) {
	internal, external := sp.NoLocalEndpoints()
	if internal {
		n.Internal += by
	}
	if external {
		n.External += by
	}
}

// ServicePorts yields all service ports, in an order that depends on their names only.
func (s *FamilySnapshot) ServicePorts() iter.Seq[*ServicePort] {
	return func(yield func(*ServicePort) bool) {
		for _, sp := range s.ports.All() {
			if !yield(sp) {
				return
			}
		}
	}
}

// ServicePort returns the service port of a name.
func (s *FamilySnapshot) ServicePort(n ServicePortName) (*ServicePort, bool) {
	return s.ports.Get(ServicePortKeys, &n)
}

// With returns the snapshot with other versions of some of its service ports, or without those that are nil.
func (s *FamilySnapshot) With(others map[ServicePortName]*ServicePort) *FamilySnapshot {
	if len(others) == 0 {
		return s
	}
	changed, edit := *s, s.ports.Edit(ServicePortKeys)
	for name, sp := range others {
		if sp == nil {
			edit.Delete(&name)
		} else {
			edit.Set(&sp.Name, sp)
		}
	}
	changed.ports = edit.Done()
	return &changed
}

// NumServicePorts returns the number of service ports.
func (s *FamilySnapshot) NumServicePorts() int { return s.ports.Len() }

// IsClusterIP reports whether an address is the cluster IP of a Service.
func (s *FamilySnapshot) IsClusterIP(a netip.Addr) bool {
	_, is := s.ClusterIPs.Get(AddrKeys, a)
	return is
}

// ServicePortChanges yields the service ports that differ from old to s. Old or New is nil if there is none of a name.
func (s *FamilySnapshot) ServicePortChanges(
	old *FamilySnapshot,
) iter.Seq[persist.Change[*ServicePortName, *ServicePort]] {
	return s.ports.Changes(ServicePortKeys, old.ports)
}

// TaintToBeDeleted is on a Node that the cluster autoscaler is about to delete.
const TaintToBeDeleted = "ToBeDeletedByClusterAutoscaler"

// NodeState is the state of the Node object, as load balancers need it.
type NodeState struct {
	// Known: there is a Node object.
	Known bool
	// Eligible: load balancers may send new connections to this node. They must not while it is being deleted, or has the
	// taint TaintToBeDeleted (KEP-3836), or while its addresses are remembered from a former version.
	Eligible bool
	// Why is the reason if there is a Node object that is not eligible.
	Why string
}

// NodeObject has facts of the Node object, the last known ones if it is gone. Nothing changes them.
type NodeObject struct {
	Taints   []string // the keys of those that the Node has
	Addrs    []netip.Addr
	PodCIDRs []netip.Prefix
}

// HealthCheck is the node's answer to a load balancer's health check of one Service
// (spec.healthCheckNodePort, for type LoadBalancer with externalTrafficPolicy Local).
type HealthCheck struct {
	Port     uint16                             // TCP
	Families [len(Families)]HealthCheckOfFamily // a load balancer asks about the family in which it asks
}

// HealthCheckOfFamily is the answer in one IP family.
type HealthCheckOfFamily struct {
	Has bool // the Service is in the family; otherwise nothing answers
	// LocalEndpoints is the number of addresses of ready endpoints on this node, over all ports of the Service. It
	// excludes terminating endpoints, which may still serve, so that load balancers turn away in time.
	LocalEndpoints int
}
