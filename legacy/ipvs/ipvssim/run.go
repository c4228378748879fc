package ipvssim

import (
	"fmt"
	"net/netip"

	"github.com/vmapd/vmapd/legacy/iptables/iptsim"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// run is one packet's path.
type run struct {
	*Simulator
	iptsim.Packet        // as it is now
	theirMark     uint32 // set by other programs' rules
	trace         []string
}

// hook is a built-in chain of a table.
type hook struct{ table, chain string }

// Run runs the first packet of a connection.
func (s *Simulator) Run(c model.Connection) (Outcome, error) {
	return s.RunPacket(iptsim.Packet{Connection: c, SourcePort: modeltest.ClientPort})
}

// RunPacket runs a packet that the node receives or sends, perhaps with a mark that other
// programs' rules have set.
func (s *Simulator) RunPacket(p iptsim.Packet) (Outcome, error) {
	if f := model.FamilyOf(p.Dest.Addr()); f != s.content.Family || model.FamilyOf(p.Source) != f {
		return Outcome{}, fmt.Errorf("%+v: the content is for %v alone", p, s.content.Family)
	}
	if err := s.load(); err != nil {
		return Outcome{}, err
	}
	r := &run{Simulator: s, Packet: p, theirMark: p.Mark}
	o, err := r.packet()
	o.Trace = r.trace
	if err != nil {
		err = fmt.Errorf("%+v: %w", p, err)
	}
	return o, err
}

func (r *run) packet() (Outcome, error) {
	if r.Node {
		return r.fromNode()
	}
	if !r.isLocal(r.Dest.Addr()) {
		return r.pass(hook{"mangle", "FORWARD"}, hook{"filter", "FORWARD"})
	}
	o, err := r.pass(hook{"mangle", "INPUT"}, hook{"filter", "INPUT"})
	if err != nil || o.Verdict != model.Forwarded {
		return o, err
	}
	if k, ok := r.server(); ok {
		return r.schedule(k)
	}
	o.Node = true
	return o, nil
}

// fromNode runs a packet of a process on the node: in the hook output, IPVS precedes the table
// filter (NF_IP_PRI_NAT_DST + 2).
func (r *run) fromNode() (Outcome, error) {
	if o, err := r.pass(hook{"mangle", "OUTPUT"}); err != nil || o.Verdict != model.Forwarded {
		return o, err
	}
	if k, ok := r.server(); ok {
		return r.schedule(k)
	}
	o, err := r.pass(hook{"filter", "OUTPUT"})
	o.Node = o.Verdict == model.Forwarded && r.isLocal(r.Dest.Addr())
	return o, err
}

// pass runs the packet through its iptables rules at one hook after the other. After the
// last one, it is forwarded to its own destination.
func (r *run) pass(hooks ...hook) (Outcome, error) {
	o := forwarded(map[netip.AddrPort]modeltest.Arrival{r.Dest: {Share: 1}})
	if r.rules == nil {
		return o, nil
	}
	for _, h := range hooks {
		p, met, err := r.rules.Hook(h.table, h.chain, r.Packet)
		r.Packet, r.trace = p, append(r.trace, met.Trace...)
		if o.Outcome = met.Outcome; err != nil || o.Verdict != model.Forwarded {
			return o, err
		}
	}
	return o, nil
}

func forwarded(to map[netip.AddrPort]modeltest.Arrival) Outcome {
	return Outcome{Outcome: modeltest.Outcome{Verdict: model.Forwarded, To: to}}
}

// server finds the virtual server.
func (r *run) server() (ipvs.Key, bool) {
	k := ipvs.Key{Addr: r.Dest.Addr(), Protocol: r.Protocol, Port: r.Dest.Port()}
	_, ok := r.content.Servers[k]
	return k, ok
}

// schedule sends the packet to each real server that has a weight or, if the client is
// remembered, to the one that it had before. Without any, the kernel answers with an ICMP error
// (ip_vs_leave).
func (r *run) schedule(k ipvs.Key) (Outcome, error) {
	s := r.content.Servers[k]
	o := forwarded(map[netip.AddrPort]modeltest.Arrival{})
	o.Server = k
	total := 0
	for _, w := range s.Real {
		total += w
	}
	if total == 0 {
		o.Outcome = modeltest.Outcome{Verdict: model.Rejected}
		return o, nil
	}
	if before, ok := r.templates[template{k, r.Source}]; ok && s.Real[before] > 0 {
		s.Real = map[netip.AddrPort]int{before: s.Real[before]}
		total = s.Real[before]
	}
	for addr, w := range s.Real {
		if w == 0 {
			continue
		}
		masquerade, err := r.send(addr)
		if err != nil {
			return o, err
		}
		o.To[addr] = modeltest.Arrival{Share: float64(w) / float64(total), Masquerade: masquerade}
	}
	return o, nil
}

// send takes a copy of the packet to a real server, and reports whether it is masqueraded.
func (r *run) send(to netip.AddrPort) (masquerade bool, err error) {
	sent := *r
	sent.Dest, sent.ByIPVS = to, true
	defer func() { r.trace = sent.trace }()
	if !r.Node && r.nodeAddrs[to.Addr()] {
		return false, nil // ip_vs_nat_send_or_cont: NF_ACCEPT, so it goes on to its socket
	}
	o, err := sent.pass(hook{"mangle", "OUTPUT"}, hook{"filter", "OUTPUT"}, hook{"nat", "POSTROUTING"})
	masquerade = o.To[to].Masquerade
	if err == nil && o.Verdict == model.Forwarded && r.theirMark != sent.Mark {
		return false, fmt.Errorf("leaves with mark %#x, came with %#x", sent.Mark, r.theirMark)
	}
	if err == nil && o.Verdict == model.Forwarded && r.Node && r.nodeAddrs[to.Addr()] {
		// Over the loopback device, into the node again.
		sent.Node, sent.Interface = false, "lo"
		o, err = sent.pass(hook{"mangle", "INPUT"}, hook{"filter", "INPUT"})
	}
	if err == nil && o.Verdict != model.Forwarded {
		err = fmt.Errorf("to real server %v: %v", to, o.Verdict)
	}
	return masquerade, err
}
