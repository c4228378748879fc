package ipvssim

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// run is one packet's way.
type run struct {
	*Simulator
	Packet
	sent  bool   // by IPVS, to a real server
	mark  uint32 // the packet's, as it is now
	trace []string
}

// ending is how a packet left a table.
type ending uint8

const (
	passed ending = iota
	returned
	accepted
	dropped
	rejected
	resetted
	masqueraded
)

// Run runs the first packet of a connection.
func (s *Simulator) Run(c model.Connection) (Outcome, error) {
	return s.RunPacket(Packet{Connection: c, SourcePort: modeltest.ClientPort})
}

// RunPacket runs any packet.
func (s *Simulator) RunPacket(p Packet) (Outcome, error) {
	if f := model.FamilyOf(p.Dest.Addr()); f != s.content.Family || model.FamilyOf(p.Source) != f {
		return Outcome{}, fmt.Errorf("%+v: the content is for %v alone", p, s.content.Family)
	}
	r := &run{Simulator: s, Packet: p, mark: p.Mark}
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
	if how, err := r.hook("mangle", "PREROUTING"); err != nil || how != passed {
		return verdict(how), err
	}
	if !r.isLocal(r.Dest.Addr()) {
		how, err := r.hook("filter", "FORWARD")
		return r.asRouted(how), err
	}
	if how, err := r.hook("filter", "INPUT"); err != nil || how != passed {
		return verdict(how), err
	}
	if k, ok := r.server(); ok {
		return r.schedule(k)
	}
	return r.asRouted(passed), nil
}

// fromNode: IPVS comes before the table filter (NF_IP_PRI_NAT_DST + 2).
func (r *run) fromNode() (Outcome, error) {
	if how, err := r.hook("mangle", "OUTPUT"); err != nil || how != passed {
		return verdict(how), err
	}
	if k, ok := r.server(); ok {
		return r.schedule(k)
	}
	how, err := r.hook("filter", "OUTPUT")
	return r.asRouted(how), err
}

// asRouted is the outcome of a packet that no virtual server concerns.
func (r *run) asRouted(how ending) Outcome {
	if how != passed {
		return verdict(how)
	}
	o := forwarded(map[netip.AddrPort]modeltest.Arrival{r.Dest: {Share: 1}})
	o.Node = r.isLocal(r.Dest.Addr())
	return o
}

func forwarded(to map[netip.AddrPort]modeltest.Arrival) Outcome {
	return Outcome{Outcome: modeltest.Outcome{Verdict: model.Forwarded, To: to}}
}

func verdict(how ending) Outcome {
	if how == dropped {
		return Outcome{Outcome: modeltest.Outcome{Verdict: model.Dropped}}
	}
	return Outcome{Outcome: modeltest.Outcome{Verdict: model.Rejected, TCPReset: how == resetted}}
}

// server finds the virtual server: by the mark, and then by the destination.
func (r *run) server() (ipvs.Key, bool) {
	byMark := ipvs.Key{Addr: r.content.Family.Unspecified(), Mark: r.mark}
	byAddr := ipvs.Key{Addr: r.Dest.Addr(), Protocol: r.Protocol, Port: r.Dest.Port()}
	for _, k := range [...]ipvs.Key{byMark, byAddr} {
		if _, ok := r.content.Servers[k]; ok && k != (ipvs.Key{Addr: byMark.Addr}) {
			return k, true
		}
	}
	return ipvs.Key{}, false
}

// schedule sends the packet to each real server that has a weight. Without any, the kernel
// answers with an ICMP error (ip_vs_leave).
func (r *run) schedule(k ipvs.Key) (Outcome, error) {
	s := r.content.Servers[k]
	o := forwarded(map[netip.AddrPort]modeltest.Arrival{})
	o.Server = k
	total := 0
	for _, w := range s.Real {
		total += w
	}
	if total == 0 {
		o = verdict(rejected)
		o.Server = k
		return o, nil
	}
	for addr, w := range s.Real {
		if w == 0 {
			continue
		}
		masquerade, how, err := r.send(addr)
		if err != nil {
			return o, err
		}
		if how != passed {
			return o, fmt.Errorf("what is sent to a real server is stopped: %v", verdict(how))
		}
		o.To[addr] = modeltest.Arrival{Share: float64(w) / float64(total), Masquerade: masquerade}
	}
	return o, nil
}

// send takes a copy of the packet to a real server.
func (r *run) send(to netip.AddrPort) (masquerade bool, how ending, err error) {
	sent := *r
	sent.Dest, sent.sent = to, true
	defer func() { r.trace = sent.trace }()
	if !r.Node && r.nodeAddrs[to.Addr()] {
		return false, passed, nil // ip_vs_nat_send_or_cont: NF_ACCEPT, so it goes on to its socket
	}
	for _, table := range [...]string{"mangle", "filter"} {
		if how, err = sent.hook(table, "OUTPUT"); err != nil || how != passed {
			return false, how, err
		}
	}
	how, err = sent.hook("nat", "POSTROUTING")
	if err != nil || how != passed && how != masqueraded {
		return false, how, err
	}
	masquerade = how == masqueraded
	if r.Packet.Mark == 0 && sent.mark != 0 {
		return false, how, fmt.Errorf("leaves with mark %#x", sent.mark)
	}
	if r.Node && r.nodeAddrs[to.Addr()] { // over the loopback device, into the node again
		sent.Node, sent.Interface = false, "lo"
		for _, h := range [...][2]string{{"mangle", "PREROUTING"}, {"filter", "INPUT"}} {
			if how, err = sent.hook(h[0], h[1]); err != nil || how != passed {
				return false, how, err
			}
		}
	}
	return masquerade, passed, nil
}

// hook runs the jumps of a built-in chain.
func (r *run) hook(table, builtin string) (ending, error) {
	how, err := r.chain(table, table+" "+builtin, r.jumps[table+" "+builtin], 0)
	if how == returned || how == accepted {
		how = passed
	}
	return how, err
}

const maxDepth = 16

func (r *run) chain(table, name string, rules []ipvs.Rule, depth int) (ending, error) {
	if depth > maxDepth {
		return passed, fmt.Errorf("chain %s: a loop", name)
	}
	for _, rule := range rules {
		match := true
		for _, m := range rule.Matches {
			ok, err := r.match(m)
			if err != nil {
				return passed, fmt.Errorf("chain %s: %w", name, err)
			}
			if match = match && ok; !match {
				break
			}
		}
		if !match {
			continue
		}
		r.trace = append(r.trace, name+": "+rule.Text(r.content.Family))
		how, more, err := r.target(table, rule.Target, depth)
		if err != nil || !more {
			return how, err
		}
	}
	return passed, nil
}

// target does what a rule says; more is whether the next rule is met.
func (r *run) target(table string, t ipvs.Target, depth int) (how ending, more bool, err error) {
	switch t := t.(type) {
	case ipvs.Jump:
		how, err = r.chain(table, t.Chain, r.chains[table][t.Chain], depth+1)
		return how, how == passed || how == returned, err
	case ipvs.Accept:
		return accepted, false, nil
	case ipvs.Return:
		return returned, false, nil
	case ipvs.Drop:
		return dropped, false, nil
	case ipvs.Reject:
		switch {
		case !t.TCPReset:
			return rejected, false, nil
		case r.Protocol != model.TCP:
			return passed, false, fmt.Errorf("a reset for %v", r.Protocol)
		}
		return resetted, false, nil
	case ipvs.SetMark:
		r.mark = r.mark&^t.Mask ^ t.Value
		return passed, true, nil
	case ipvs.MapMark:
		e, err := r.entry(t.Set, t.Fields)
		if err != nil {
			return passed, false, err
		}
		if mark, ok := r.content.Sets[t.Set][e]; ok {
			r.mark = mark
		}
		return passed, true, nil
	case ipvs.Masquerading:
		return masqueraded, false, nil
	}
	return passed, false, fmt.Errorf("unknown target %T", t)
}

func (r *run) match(m ipvs.Match) (bool, error) {
	switch m := m.(type) {
	case ipvs.InSet:
		ok, err := r.inSet(m.Set, m.Fields)
		return ok != m.Not, err
	case ipvs.StateIs:
		state := "NEW"
		if r.Invalid {
			state = "INVALID"
		}
		return m.States == state, nil
	case ipvs.From:
		return m.Prefix.Contains(r.Source), nil
	case ipvs.To:
		return m.Prefix.Contains(r.Dest.Addr()), nil
	case ipvs.By:
		has := !r.Node && (r.Interface == m.Name || m.Wildcard && strings.HasPrefix(r.Interface, m.Name))
		return has != m.Not, nil
	case ipvs.Marked:
		return (r.mark&m.Mask == m.Value) != m.Not, nil
	case ipvs.FromLocal:
		return r.Node || r.isLocal(r.Source), nil
	case ipvs.ToLocal:
		return r.isLocal(r.Dest.Addr()) != m.Not, nil
	case ipvs.ByIPVS:
		return r.sent != m.Not, nil
	case ipvs.IsTCP:
		return r.Protocol == model.TCP, nil
	}
	return false, fmt.Errorf("unknown match %T", m)
}

// inSet looks the packet up. Sources are looked up by range.
func (r *run) inSet(set ipvs.SetName, fields string) (bool, error) {
	e, err := r.entry(set, fields)
	if err != nil {
		return false, err
	}
	if set != ipvs.Sources {
		_, ok := r.content.Sets[set][e]
		return ok, nil
	}
	for bits := e.Net.Bits(); bits > 0; bits-- { // no type of set knows a size of 0
		e.Net = netip.PrefixFrom(e.Net.Addr(), bits).Masked()
		if _, ok := r.content.Sets[set][e]; ok {
			return true, nil
		}
	}
	return false, nil
}

// entry is what a packet is looked up by: a field for each component of the set's type.
func (r *run) entry(set ipvs.SetName, fields string) (ipvs.Entry, error) {
	src, dst := netip.AddrPortFrom(r.Source, r.SourcePort), r.Dest
	whole := func(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
	switch set.Type() + " " + fields {
	case "hash:ip dst":
		return ipvs.Entry{Addr: dst.Addr()}, nil
	case "hash:ip src":
		return ipvs.Entry{Addr: src.Addr()}, nil
	case "hash:ip,port dst,dst":
		return ipvs.Entry{Addr: dst.Addr(), Protocol: r.Protocol, Port: dst.Port()}, nil
	case "hash:ip,port src,src":
		return ipvs.Entry{Addr: src.Addr(), Protocol: r.Protocol, Port: src.Port()}, nil
	case "hash:ip,port,net dst,dst,src":
		return ipvs.Entry{Addr: dst.Addr(), Protocol: r.Protocol, Port: dst.Port(), Net: whole(src.Addr())}, nil
	case "hash:net,net src,dst":
		return ipvs.Entry{Addr: src.Addr(), Net: whole(dst.Addr())}, nil
	}
	return ipvs.Entry{}, fmt.Errorf("set %s of type %s is asked by %s", set, set.Type(), fields)
}
