package preflight

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/vmapd/vmapd/legacy/iptables/iptsim"
	"github.com/vmapd/vmapd/model"
)

// firewall compares what kube-proxy's rules in the table filter do for others: they accept packets
// that a firewall would drop, and drop packets that are INVALID for connection tracking.
func (x *comparison) firewall(f model.Family, before *Rules) error {
	if before.Mode != "iptables" {
		return nil
	}
	node := iptsim.Node{IsLocal: func(a netip.Addr) bool { return x.isNode[a] || a.IsLoopback() }}
	own, err := iptsim.NewOn(node, before.own)
	if err != nil {
		return err
	}
	x.invalid(f, own)
	x.packetMark(before)
	all, errAll := iptsim.NewOn(node, before.all)
	others, errOthers := iptsim.NewOn(node, before.others)
	if err := errors.Join(errAll, errOthers); err != nil {
		// Other rules may be odder than the simulator knows; kube-proxy's own are not.
		x.report.Unread = append(x.report.Unread, fmt.Sprintf("rules of others, for the chains FORWARD and INPUT: %v", err))
		return nil
	}
	w := firewallChange{all, others}
	if x.in.Backend != "iptables" {
		x.forwarded(f, w)
	}
	x.healthChecks(f, w)
	return nil
}

// firewallChange are the rules on the node before and after.
type firewallChange struct{ before, after *iptsim.Simulator }

// accepts reports whether a packet passes a chain of the table filter. A packet that the simulator
// can't follow does.
func accepts(sim *iptsim.Simulator, chain string, p iptsim.Packet) bool {
	_, o, err := sim.Hook("filter", chain, p)
	return err != nil || o.Verdict == model.Forwarded
}

const masqueradeMark = 0x4000

// forwarded looks for connections that only kube-proxy's rules accept in the chain FORWARD.
func (x *comparison) forwarded(f model.Family, w firewallChange) {
	for _, s := range x.served {
		if model.FamilyOf(s.to.Addr()) != f || s.Node || x.isNode[s.to.Addr()] {
			continue
		}
		first := iptsim.Packet{Connection: s.Connection}
		first.Dest = s.to
		marked := first
		if s.marked {
			marked.Mark = masqueradeMark
		}
		reply := iptsim.Packet{Established: true, Connection: model.Connection{
			Source: s.to.Addr(), Dest: netip.AddrPortFrom(s.Source, s.Dest.Port()), Protocol: s.Protocol,
		}}
		const chain = "FORWARD"
		if !accepts(w.before, chain, marked) || !accepts(w.before, chain, reply) {
			continue // it fails already
		}
		if accepts(w.after, chain, first) && accepts(w.after, chain, reply) {
			continue
		}
		note(x.differences, Difference{
			ID:     "forward-policy",
			What:   "the chain FORWARD of iptables drops connections that only kube-proxy's rules accept there",
			Remedy: "configure the network plugin or the firewall to accept the pods' traffic; or keep mode iptables",
			Keep:   "backend: iptables",
		}, s.probe, false, &Example{
			From: s.Source.String(), To: fmt.Sprintf("%v/%v", s.Dest, s.Protocol),
			Before: "accepted", After: "dropped in the chain FORWARD, on the way to " + s.to.String() + " or back",
		})
	}
}

// healthChecks looks for health-check node ports that only kube-proxy's rules accept in the chain
// INPUT.
func (x *comparison) healthChecks(f model.Family, w firewallChange) {
	node := x.primary(f)
	if !node.IsValid() {
		return
	}
	for i := range x.in.Objects.Services {
		s := &x.in.Objects.Services[i]
		if s.HealthCheckNodePort == 0 || s.ExternalTrafficPolicy != "Local" || !hasFamily(s, f) {
			continue
		}
		packet := iptsim.Packet{Connection: model.Connection{
			Source: outside[f], Interface: "eth0", Protocol: model.TCP, Dest: netip.AddrPortFrom(node, uint16(s.HealthCheckNodePort)),
		}}
		if !accepts(w.before, "INPUT", packet) || accepts(w.after, "INPUT", packet) {
			continue
		}
		note(x.differences, Difference{
			ID:     "input-policy",
			What:   "the chain INPUT of iptables drops health checks of load balancers, which only kube-proxy's rules accept there",
			Remedy: "accept connections of the load balancers to the health-check node ports in the chain INPUT",
		}, probe{client: Outside, service: s, Connection: packet.Connection}, false, &Example{
			From: packet.Source.String(), To: fmt.Sprintf("%v/%v", packet.Dest, packet.Protocol), Before: "accepted", After: "dropped in the chain INPUT",
		})
	}
}

// invalid looks at packets that are INVALID for connection tracking.
func (x *comparison) invalid(f model.Family, own *iptsim.Simulator) {
	packet := iptsim.Packet{Invalid: true, Connection: model.Connection{
		Source: outside[f], Interface: "eth0", Protocol: model.TCP, Dest: netip.AddrPortFrom(outside[f], 80),
	}}
	_, o, err := own.Hook("filter", "FORWARD", packet)
	if err != nil || o.Verdict != model.Dropped || x.in.Config.DropInvalid {
		return
	}
	d := Difference{
		ID:     "invalid-packets",
		What:   "forwarded packets that connection tracking classifies as INVALID are not dropped",
		Remedy: "drop those of Services, or set conntrack.tcpBeLiberal: true, with which there are few",
		Keep:   "dropInvalid: true",
	}
	x.differences[d.ID] = &d
}

// packetMark looks for rules of others that depend on kube-proxy's.
func (x *comparison) packetMark(before *Rules) {
	for _, rule := range before.marked {
		if x.in.Backend != "nftables" && !jumpTo.MatchString(rule) {
			continue // the same mark
		}
		d := Difference{
			ID:     "packet-mark",
			What:   "rules of others look for kube-proxy's packet mark or chains, and find nothing",
			Remedy: "change or remove these rules",
		}
		if x.differences[d.ID] == nil {
			x.differences[d.ID] = &d
		}
		addTo(&x.differences[d.ID].Rules, strings.TrimSpace(rule))
	}
}
