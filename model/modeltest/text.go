package modeltest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// FamilyText returns a family of a snapshot in sorted lines, one fact each: two with the same text are the same desired
// state.
func FamilyText(s *model.FamilySnapshot) []string {
	lines := PortTexts(s)
	add := func(format string, args ...any) {
		lines = append(lines, s.Family.String()+" "+fmt.Sprintf(format, args...))
	}
	for a := range s.ClusterIPs.All() {
		add("cluster IP %v", a)
	}
	for a := range s.Hairpins.All() {
		add("hairpin %v", a)
	}
	for v := range s.ServiceEndpoints.All() {
		add("endpoint %v", v)
	}
	for sp := range s.ServicePorts() {
		if len(sp.Draining) > 0 || sp.ConnectionGrace > 0 {
			add("%v/%v connection grace %v, draining %v", sp.Name, sp.Name.Protocol, sp.ConnectionGrace, sp.Draining)
		}
	}
	add("without local endpoints: internal %d, external %d", s.NoLocal.Internal, s.NoLocal.External)
	add("settings %+v", *s.Settings)
	slices.Sort(lines)
	return lines
}

// PortTexts returns a line for each service port of a family, sorted.
func PortTexts(s *model.FamilySnapshot) []string {
	var lines []string
	for sp := range s.ServicePorts() {
		lines = append(lines, PortText(sp))
	}
	slices.Sort(lines)
	return lines
}

// PortText returns a service port in one line: its name, its frontends each with its
// action, and its endpoints:
//
//	ns1/web:http/tcp [172.30.0.41:80 forward, :30001 forward masquerade] 10.0.0.2:8080 local, 10.0.0.3:8080
func PortText(sp *model.ServicePort) string {
	var frontends, endpoints []string
	for _, fe := range sp.Frontends {
		text := netip.AddrPortFrom(fe.VIP.Addr, fe.VIP.Port).String()
		if fe.Kind == model.NodePort {
			text = fmt.Sprintf(":%d", fe.VIP.Port)
		}
		text += " " + fe.Action.String()
		if fe.TrafficPolicy == model.Local {
			text += " local"
		}
		switch fe.SourceNAT {
		case model.MasqueradeAlways:
			text += " masquerade"
		case model.MasqueradeNode:
			text += " masquerade-node"
		case model.MasqueradeOutside:
		}
		if fe.ShortCircuit {
			text += " short-circuit"
		}
		if fe.Restricted {
			text += fmt.Sprintf(" from %v", sp.Allowed(fe))
		}
		frontends = append(frontends, text)
	}
	for _, e := range sp.Endpoints {
		text := e.Addr.String()
		if e.Local {
			text += " local"
		}
		switch {
		case e.In(model.Cluster) && e.In(model.Local):
			text += " in both lists"
		case e.In(model.Local):
			text += " in the local list"
		}
		endpoints = append(endpoints, text)
	}
	text := fmt.Sprintf("%v/%v [%s]", sp.Name, sp.Name.Protocol, strings.Join(frontends, ", "))
	if sp.Algorithm != model.Random {
		text += " " + sp.Algorithm.String()
	}
	if sp.Affinity > 0 {
		text += fmt.Sprintf(" affinity %v", sp.Affinity)
	}
	if len(endpoints) > 0 {
		text += " " + strings.Join(endpoints, ", ")
	}
	return text
}
