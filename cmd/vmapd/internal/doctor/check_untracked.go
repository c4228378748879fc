package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/firewall"
	"github.com/vmapd/vmapd/model"
)

// tracked is a packet that connection tracking must see, so that a Service can be applied.
type tracked struct {
	hook   firewall.Hook
	packet firewall.Packet
	answer bool
}

// trackedOf returns the first packets of connections to a target, and the answers of its endpoint.
func trackedOf(t Target) []tracked {
	first := firewall.Packet{
		IPv6: t.Addr.Addr().Is6(), Proto: protocols[t.Protocol], Dst: t.Addr.Addr(), DstPort: t.Addr.Port(),
		Local: firewall.Maybe,
	}
	answer := firewall.Packet{
		IPv6: first.IPv6, Proto: first.Proto, Src: t.Endpoint.Addr(), SrcPort: t.Endpoint.Port(), Local: firewall.Maybe,
	}
	return []tracked{
		{firewall.Prerouting, first, false},
		{firewall.Output, first, false},
		{firewall.Prerouting, answer, true},
		{firewall.Output, answer, true},
	}
}

// MayUntrack reports whether rules of other programs may keep packets of connections to a target from being tracked.
func MayUntrack(rules []firewall.Ruleset, t Target) bool {
	return slices.ContainsFunc(trackedOf(t), func(p tracked) bool {
		return len(firewall.Walk(rules, p.hook, lowest, tracking-1, &p.packet, ours).Untracks) > 0
	})
}

// untracked follows connections to Services, as far as rules may keep them from being tracked. A rule that certainly
// does so is a failure, unless a process of the node serves the address. IPVS and userspace work without tracking.
func (f Facts) untracked() (lines []Line) {
	if f.Wants.Backend == "ipvs" || f.Wants.Backend == "userspace" {
		return nil
	}
	type finding struct {
		firewall.Place
		answer bool
	}
	found := map[finding][]string{}
	var order []finding
	for _, t := range f.Wants.Untracked {
		for _, p := range f.trackedHere(t) {
			if f.Host.Served[t] && !p.answer {
				continue
			}
			name := fmt.Sprintf("%v/%s of %s", t.Addr, t.Protocol, t.Service)
			if p.answer {
				name = fmt.Sprintf("%v/%s, an endpoint of %s", t.Endpoint, t.Protocol, t.Service)
			}
			for _, rule := range firewall.Walk(f.Host.Firewall, p.hook, lowest, tracking-1, &p.packet, ours).Untracks {
				at := finding{rule.Place, p.answer}
				if !rule.Certain || slices.Contains(found[at], name) {
					continue
				}
				if found[at] == nil {
					order = append(order, at)
				}
				found[at] = append(found[at], name)
			}
		}
	}
	for _, at := range order {
		lines = append(lines, untrackedLine(at.Place, at.answer, found[at]))
	}
	return lines
}

func untrackedLine(at firewall.Place, answer bool, names []string) Line {
	what, follows := "connections to", "they reach no endpoint, unless a process of this node has the address"
	remedy := "delete that rule; or, if NodeLocal DNSCache made it, let its process run on this node"
	if answer {
		what, follows = "answers of", "they come from the endpoint's address in place of the Service's"
		remedy = "delete that rule"
	}
	name := names[0]
	if more := len(names) - 1; more > 0 {
		name += fmt.Sprintf(", and %d others,", more)
	} else if answer {
		name += ","
	}
	text := fmt.Sprintf("%v, which is not vmapd's, keeps %s %s from being tracked (NOTRACK): %s", at, what, name, follows)
	return Line{Level: Fail, Evidence: text, Remedy: remedy}
}

// trackedHere returns the packets of a target with what the node knows of them: those of a pod, of a client outside and
// of the node itself, and the answer.
func (f Facts) trackedHere(t Target) (list []tracked) {
	endpoint, known := f.Host.Routes[t.Endpoint.Addr()]
	onNode := known && endpoint == ""
	for _, p := range trackedOf(t) {
		p.packet.Local = firewall.No
		if name, ok := f.Host.Routes[t.Addr.Addr()]; !p.answer && ok && name == "" {
			p.packet.Local = firewall.Yes
		}
		if p.hook == firewall.Output {
			p.packet.In = firewall.NoInterface
			if !p.answer || onNode {
				list = append(list, p)
			}
			continue
		}
		p.packet.Out = firewall.NoInterface
		if p.answer {
			p.packet.In, p.packet.Local = endpoint, firewall.Maybe
			if !onNode {
				list = append(list, p)
			}
			continue
		}
		outside := p
		outside.packet.In = f.Host.DefaultRoutes[model.FamilyOf(t.Addr.Addr())]
		list = append(list, outside)
		i := slices.IndexFunc(f.Wants.LocalPods, func(a netip.Addr) bool { return a.Is6() == p.packet.IPv6 })
		if i >= 0 {
			p.packet.Src, p.packet.In = f.Wants.LocalPods[i], f.Host.Routes[f.Wants.LocalPods[i]]
			list = append(list, p)
		}
	}
	return list
}
