package userspace

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// place is what the listener at an address, protocol and port serves. A frontend has one of them, a node port
// one for each address of the node.
type place struct {
	*model.ServicePort
	*model.Frontend
}

// wanted is a snapshot with the listeners that it wants, and the addresses that connections to Services come to: none
// of the node's own, and none that may be a pod's, which would cut off the pod. A cluster IP without endpoints is one
// of them: there, connections are refused.
type wanted struct {
	*model.Snapshot
	places map[model.VIP]place
	addrs  map[netip.Addr]bool
}

// want returns what a snapshot wants, on loopback alone or in all.
func want(s *model.Snapshot, loopback bool) *wanted {
	w := &wanted{s, map[model.VIP]place{}, map[netip.Addr]bool{}}
	for _, f := range model.Families {
		w.add(s.Family(f), loopback)
	}
	return w
}

// add adds what a family wants. An address of a Service precedes a node port that is the same. A frontend that
// only rejects has no listener: then the kernel refuses, as it does for any closed port.
func (w *wanted) add(s *model.FamilySnapshot, loopback bool) {
	if s.Settings == nil || loopback && !s.Localhost {
		return
	}
	for a := range s.ClusterIPs.All() {
		w.addrs[a] = true
	}
	for sp := range s.ServicePorts() {
		local, _, onLoopback := sp.Loopback()
		for i := range sp.Frontends {
			fe := &sp.Frontends[i]
			a := fe.VIP.Addr
			at := []netip.Addr{a}
			isPod := func(p netip.Prefix) bool { return p.Contains(a) }
			if fe.Kind == model.NodePort {
				at = s.NodePortAddrs
			} else if !slices.Contains(s.NodeAddrs, a) && !slices.ContainsFunc(s.Pods.CIDRs, isPod) {
				w.addrs[a] = true
			}
			if loopback || fe.Action == model.Reject {
				at = nil
			}
			if fe.Kind == model.NodePort && onLoopback && s.Localhost {
				at = append(slices.Clip(at), local.Addr())
			}
			for _, a := range at {
				vip := model.VIP{Addr: a, Protocol: fe.VIP.Protocol, Port: fe.VIP.Port}
				if had, ok := w.places[vip]; !ok || had.Kind == model.NodePort {
					w.places[vip] = place{sp, fe}
				}
			}
		}
	}
}

// isPlace reports whether a listener serves an address and port.
func (w *wanted) isPlace(vip model.VIP) bool { return w.places[vip].ServicePort != nil }

// Write writes the addresses that the device gets in a family, and the listeners, as text: a line for each.
func Write(out io.Writer, s *model.FamilySnapshot) error {
	w := &wanted{places: map[model.VIP]place{}, addrs: map[netip.Addr]bool{}}
	w.add(s, false)
	var lines []string
	for a := range w.addrs {
		lines = append(lines, fmt.Sprintf("address %v dev %s\n", a, DeviceName))
	}
	for vip, at := range w.places {
		lines = append(lines, fmt.Sprintf("listen %v for %v, %v\n", vip, at.Name, at.Action))
	}
	slices.Sort(lines)
	_, err := io.WriteString(out, strings.Join(lines, ""))
	return err
}
