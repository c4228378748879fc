package userspace

import (
	"bufio"
	"fmt"
	"io"
	"maps"
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

// place is the address, protocol and port of a listener, and what it serves. A frontend has one of them, a
// node port one for each address of the node.
type place struct {
	model.VIP
	Port     *model.ServicePort
	Frontend *model.Frontend
}

// places returns where a service port is served, in the order of its frontends. A frontend that
// only rejects has no listener: then the kernel refuses, as it does for any closed port.
func places(s *model.FamilySnapshot, sp *model.ServicePort, scope Scope) (list []place) {
	if s.Settings == nil || sp.Name.Protocol == model.SCTP {
		return nil
	}
	at, _, onLoopback := sp.Loopback()
	for i := range sp.Frontends {
		fe := &sp.Frontends[i]
		addrs := []netip.Addr{fe.VIP.Addr}
		if fe.Kind == model.NodePort {
			addrs = s.NodePortAddrs
		}
		if scope == Loopback || fe.Action == model.Reject {
			addrs = nil
		}
		if fe.Kind == model.NodePort && onLoopback && s.Localhost {
			addrs = append(slices.Clip(addrs), at.Addr())
		}
		for _, a := range addrs {
			list = append(list, place{model.VIP{Addr: a, Protocol: fe.VIP.Protocol, Port: fe.VIP.Port}, sp, fe})
		}
	}
	return list
}

// wanted is a snapshot with what it wants of a Forwarder.
type wanted struct {
	*model.Snapshot
	places map[model.VIP]place
	addrs  map[netip.Addr]struct{} // on a device
}

// want returns what a snapshot wants.
func want(s *model.Snapshot, scope Scope) *wanted {
	w := &wanted{s, map[model.VIP]place{}, map[netip.Addr]struct{}{}}
	for _, f := range model.Families {
		w.add(s.Family(f), scope)
	}
	return w
}

// wantOf returns what a family wants of the backend.
func wantOf(s *model.FamilySnapshot) *wanted {
	w := &wanted{nil, map[model.VIP]place{}, map[netip.Addr]struct{}{}}
	w.add(s, Everything)
	return w
}

// add adds what a family wants. An address of a Service precedes a node port that is the same.
func (w *wanted) add(s *model.FamilySnapshot, scope Scope) {
	if s.Settings == nil || scope == Loopback && !s.Localhost {
		return
	}
	for sp := range s.ServicePorts() {
		for _, at := range places(s, sp, scope) {
			if had, ok := w.places[at.VIP]; !ok || had.Frontend.Kind == model.NodePort {
				w.places[at.VIP] = at
			}
		}
		for _, fe := range sp.Frontends {
			if onDevice(s, fe) {
				w.addrs[fe.VIP.Addr] = struct{}{}
			}
		}
	}
	for a := range s.ClusterIPs() { // also without a port that has endpoints: then it is refused
		w.addrs[a] = struct{}{}
	}
}

// isPlace reports whether a listener serves an address and port.
func (w *wanted) isPlace(a netip.AddrPort, p model.Protocol) bool {
	_, ok := w.places[model.VIP{Addr: a.Addr(), Protocol: p, Port: a.Port()}]
	return ok
}

// onDevice reports whether a device must have the address of a frontend so that connections to it arrive: none of
// the node's own, and none that may be a pod's. Such an address would cut off the pod.
func onDevice(s *model.FamilySnapshot, fe model.Frontend) bool {
	a := fe.VIP.Addr
	isPods := func(p netip.Prefix) bool { return p.Contains(a) }
	return fe.Kind != model.NodePort && !slices.Contains(s.NodeAddrs, a) &&
		(fe.Kind == model.ClusterIP || !slices.ContainsFunc(s.Pods.CIDRs, isPods))
}

// Write writes the addresses that the device gets in a family, and the listeners, as text: a line for each.
func Write(w io.Writer, s *model.FamilySnapshot) error {
	b := bufio.NewWriter(w)
	for _, a := range slices.SortedFunc(maps.Keys(wantOf(s).addrs), netip.Addr.Compare) {
		fmt.Fprintf(b, "address %s dev %s\n", a, DeviceName)
	}
	for sp := range s.ServicePorts() {
		for _, at := range places(s, sp, Everything) {
			fmt.Fprintf(b, "listen %v for %v, %v\n", at.VIP, sp.Name, at.Frontend.Action)
		}
	}
	return b.Flush()
}

// Resets is the difference that scenarios try.
const Resets = "a TCP connection that is to be dropped, as loadBalancerSourceRanges or a policy Local say, is " +
	"accepted and reset; a Service without endpoints refuses it, and datagrams, too"

// Differences lists those that concern single new connections without a history. The page docs/internals.md has all.
var Differences = []model.Difference{
	{What: "SCTP is not served", Concerns: isSCTP},
	{What: Resets, Concerns: resets},
	{
		What: "on the address of a Service, ports that no Service has are refused, and neither routed on nor, " +
			"inside a ServiceCIDR, dropped; a process of the node that listens on all addresses answers there",
		Concerns: otherPort,
	},
	{What: "an external or load-balancer address that is a pod's is not served", Concerns: isPods},
	{What: "an endpoint at the address and port of another Service, or of the same one, is never used: vmapd " +
		"would connect to itself for ever", Concerns: loops},
}

func isSCTP(_ *model.FamilySnapshot, d model.Decision) bool {
	return d.Protocol == model.SCTP && d.Frontend != nil
}

func resets(_ *model.FamilySnapshot, d model.Decision) bool {
	return d.Verdict == model.Dropped && d.Frontend != nil &&
		(d.Protocol == model.TCP || d.Frontend.Action == model.Reject)
}

func otherPort(s *model.FamilySnapshot, d model.Decision) bool {
	_, ours := wantOf(s).addrs[d.Dest.Addr()]
	return ours && (d.Verdict == model.NotOurs || d.Why == model.UnallocatedAddr)
}

func isPods(s *model.FamilySnapshot, d model.Decision) bool {
	return d.Frontend != nil && d.Frontend.Kind != model.NodePort &&
		!slices.Contains(s.NodeAddrs, d.Dest.Addr()) && !onDevice(s, *d.Frontend)
}

func loops(s *model.FamilySnapshot, d model.Decision) bool {
	w := wantOf(s)
	return slices.ContainsFunc(d.Targets, func(t model.Target) bool { return w.isPlace(t.Addr, d.Protocol) })
}
