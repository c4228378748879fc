package userspace

import (
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/model"
)

// Scope is the part of a snapshot that a Forwarder serves.
type Scope uint8

// The scopes.
const (
	// Everything serves all frontends: the backend.
	Everything Scope = iota
	// Loopback serves the node ports on loopback, for backends in the kernel, which can't.
	Loopback
)

// A Place is the address, protocol and port of a listener, and the kind of the frontend that it
// serves. A frontend has one of them, a node port one for each address of the node.
type Place struct {
	model.VIP
	Kind model.FrontendKind
}

// Places returns where a service port is served, in the order of its frontends. A frontend that
// only rejects has no listener: then the kernel refuses, as it does for any closed port.
func Places(s *model.FamilySnapshot, sp *model.ServicePort, scope Scope) (list []Place) {
	if sp == nil || s.Settings == nil {
		return nil
	}
	if scope == Everything {
		for _, fe := range sp.Frontends {
			switch {
			case fe.Action == model.Reject:
			case fe.Kind != model.NodePort:
				list = append(list, Place{fe.VIP, fe.Kind})
			default:
				for _, a := range s.NodePortAddrs {
					list = append(list, Place{model.VIP{Addr: a, Protocol: fe.VIP.Protocol, Port: fe.VIP.Port}, fe.Kind})
				}
			}
		}
	}
	if at, _, ok := sp.Loopback(); ok && s.Localhost {
		list = append(list, Place{model.VIP{Addr: at.Addr(), Protocol: sp.Name.Protocol, Port: at.Port()}, model.NodePort})
	}
	return list
}

// serviceAddrs returns the addresses of a service port that a device must have so that connections
// to them arrive: none of the node's own, and none that may be a pod's. Such an address would cut off
// the pod.
func serviceAddrs(s *model.FamilySnapshot, sp *model.ServicePort) (list []netip.Addr) {
	if sp == nil || s.Settings == nil {
		return nil
	}
	for _, fe := range sp.Frontends {
		a := fe.VIP.Addr
		if fe.Kind == model.NodePort || slices.Contains(list, a) || !addable(s, a, fe.Kind) {
			continue
		}
		list = append(list, a)
	}
	return list
}

func addable(s *model.FamilySnapshot, a netip.Addr, kind model.FrontendKind) bool {
	isPods := func(p netip.Prefix) bool { return p.Contains(a) }
	return !slices.Contains(s.NodeAddrs, a) && (kind == model.ClusterIP || !slices.ContainsFunc(s.Pods.CIDRs, isPods))
}

// frontendAt returns the frontend of a service port that is served at a place; nil if it has none
// of this kind there.
func frontendAt(sp *model.ServicePort, p Place) *model.Frontend {
	for i := range sp.Frontends {
		fe := &sp.Frontends[i]
		if fe.Kind == p.Kind && (fe.VIP == p.VIP || fe.Kind == model.NodePort && fe.VIP.Port == p.Port) {
			return fe
		}
	}
	return nil
}
