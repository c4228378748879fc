package trace

import (
	"net/netip"

	"github.com/vmapd/vmapd/nft/others"
)

// Collector sorts events by connections. It takes those that its tracer's rules have begun: other
// programs may trace other packets at the same time.
type Collector struct {
	Table string // of the tracer

	connections []*Connection
	byID        map[uint32]packetOf
	entered     map[uint32]others.Event // the first events in the tracer's chains of packets that others trace, too
}

// Connection has the events of a connection.
type Connection struct {
	Client        netip.AddrPort
	First, Answer []others.Event
	Redirect      netip.Addr // of the host that sent the client an ICMP redirect, if one did
}

// packetOf is one of the two packets of a connection that are traced.
type packetOf struct {
	*Connection
	answer bool
}

func (p packetOf) events() *[]others.Event {
	if p.answer {
		return &p.Answer
	}
	return &p.First
}

// Connections returns all connections, in the order of their first packets.
func (c *Collector) Connections() []*Connection { return c.connections }

// Add takes the next event.
func (c *Collector) Add(e others.Event) {
	if c.byID == nil {
		c.byID, c.entered = map[uint32]packetOf{}, map[uint32]others.Event{}
	}
	if e.Place.Table == c.Table {
		e = c.withPacket(e)
		c.begin(e)
	}
	p, ok := c.byID[e.ID]
	if !ok && e.Packet != nil {
		// A packet that leaves by loopback comes back with another ID.
		if p, ok = c.same(*e.Packet); ok {
			c.byID[e.ID] = p
		}
	}
	if ok {
		*p.events() = append(*p.events(), e)
	}
}

// begin notes the connection of a packet that the tracer's rules mark.
func (c *Collector) begin(e others.Event) {
	switch first, answer := e.Begins(); {
	case e.Packet == nil:
	case first:
		made := &Connection{Client: e.Packet.Source}
		c.connections = append(c.connections, made)
		c.byID[e.ID] = packetOf{made, false}
	case answer:
		of := c.answered(*e.Packet)
		switch {
		case of == nil:
		case e.Packet.IsRedirect():
			of.Redirect = e.Packet.Source.Addr()
		case !e.Early() || of.isFromDest(*e.Packet):
			c.byID[e.ID] = packetOf{of, true}
		}
	}
}

// withPacket adds the packet to an event that begins a trace. If somebody else traces the packet, too, an
// earlier event of the base chain has it.
func (c *Collector) withPacket(e others.Event) others.Event {
	first, answer := e.Begins()
	switch {
	case e.Kind == others.Policy:
		delete(c.entered, e.ID)
	case e.Packet != nil && e.Code == others.Jump:
		c.entered[e.ID] = e
	case e.Packet == nil && (first || answer):
		entered := c.entered[e.ID]
		e.Packet, e.In, e.Out = entered.Packet, entered.In, entered.Out
	}
	return e
}

// answered returns the connection without an answer that a packet answers.
func (c *Collector) answered(p others.Packet) *Connection {
	for _, of := range c.connections {
		first, last := ends(of.First)
		to := p.Dest
		if p.IsICMP() { // it has no ports
			to = netip.AddrPortFrom(to.Addr(), last.Source.Port())
			first.Source = netip.AddrPortFrom(first.Source.Addr(), last.Source.Port())
		}
		if len(of.Answer) == 0 && (to == last.Source || to == first.Source) {
			return of
		}
	}
	return nil
}

// isFromDest reports whether a packet comes from where the first packet went.
func (c *Connection) isFromDest(p others.Packet) bool {
	first, last := ends(c.First)
	return p.Source == first.Dest || p.Source == last.Dest
}

// same returns the packet whose last headers are these.
func (c *Collector) same(p others.Packet) (packetOf, bool) {
	for _, of := range c.connections {
		for _, candidate := range []packetOf{{of, false}, {of, true}} {
			if _, last := ends(*candidate.events()); last == p {
				return candidate, true
			}
		}
	}
	return packetOf{}, false
}

// ends returns the packet as it was at first and at last.
func ends(events []others.Event) (first, last others.Packet) {
	for _, e := range events {
		if e.Packet == nil {
			continue
		}
		if first == (others.Packet{}) {
			first = *e.Packet
		}
		last = *e.Packet
	}
	return first, last
}

// Arrived reports whether the first packet's way is complete: it left this node, came to a process
// or was ended by a rule. expects says that an answer may follow.
func (c *Connection) Arrived() (arrived, expects bool) {
	w := (&Input{}).walk(c.First)
	return c.complete(w), w.verdict == Forwarded || w.verdict == Delivered
}

// AnswerArrived reports whether an answer's way is complete.
func (c *Connection) AnswerArrived() bool { return c.complete((&Input{}).walk(c.Answer)) }

// complete reports whether nothing more follows. What leaves by loopback comes back at once.
func (c *Connection) complete(w way) bool {
	return w.verdict != "" && w.verdict != Lost && !(w.verdict == Forwarded && w.outIndex == loopback)
}

// loopback is the index of lo in every network namespace.
const loopback = 1
