package main

import (
	"net/netip"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/doctor"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/firewall"
	"github.com/vmapd/vmapd/model"
)

const (
	// Of each family, untrackedWalks targets are looked at, and untrackedTries of those that may not be tracked are
	// judged.
	untrackedTries = 10
	untrackedWalks = 100_000
)

// untrackedTargets returns Services' addresses and endpoints that rules of other programs may keep from being tracked.
func untrackedTargets(s *model.Snapshot) (list []doctor.Target) {
	if s == nil {
		return nil
	}
	rules, _, err := readRules() // examineHost reports the error
	if err != nil || !firewall.Untracks(rules) {
		return nil
	}
	for _, f := range model.Families {
		found, left := 0, untrackedWalks
		for t := range targets(s.Family(f)) {
			if left--; left < 0 || found == untrackedTries {
				break
			}
			if doctor.MayUntrack(rules, t) {
				list = append(list, t)
				found++
			}
		}
	}
	return list
}

// targets yields each address of each Service with its first endpoint, and each other endpoint with its first address.
func targets(s *model.FamilySnapshot) func(yield func(doctor.Target) bool) {
	return func(yield func(doctor.Target) bool) {
		for sp := range s.ServicePorts() {
			for i, e := range sp.Endpoints {
				for j, fe := range sp.Frontends {
					if i > 0 && j > 0 {
						break
					}
					t := targetOf(sp, fe, e.Addr)
					if fe.Kind == model.NodePort && len(s.NodePortAddrs) > 0 {
						t.Addr = netip.AddrPortFrom(s.NodePortAddrs[0], fe.VIP.Port)
					}
					if t.Addr.Addr().IsValid() && !yield(t) {
						return
					}
				}
			}
		}
	}
}

func targetOf(sp *model.ServicePort, fe model.Frontend, endpoint netip.AddrPort) doctor.Target {
	return doctor.Target{
		Service: sp.Name.String(), Protocol: sp.Name.Protocol.String(),
		Addr: netip.AddrPortFrom(fe.VIP.Addr, fe.VIP.Port), Endpoint: endpoint,
	}
}

// isServed reports whether the node has a target's address, and a process listens there.
func isServed(t doctor.Target, routes map[netip.Addr]string) bool {
	name, known := routes[t.Addr.Addr()]
	p := map[string]model.Protocol{"tcp": model.TCP, "udp": model.UDP}[t.Protocol]
	if !known || name != "" {
		return false
	}
	found, err := listens(model.VIP{Addr: t.Addr.Addr(), Protocol: p, Port: t.Addr.Port()})
	return err == nil && found
}
