package trace

import "github.com/vmapd/vmapd/nft/others"

// Collector keeps the events of a connection: of its first packet, and of the first one of the other direction. It
// takes those that its tracer's rules have begun: other programs may trace other packets at the same time.
type Collector struct {
	Table         string // of the tracer
	First, Answer []others.Event

	byID map[uint32]*[]others.Event
}

// Add takes the next event.
func (c *Collector) Add(e others.Event) {
	if c.byID == nil {
		c.byID = map[uint32]*[]others.Event{}
	}
	if e.Place.Table == c.Table && e.Packet != nil {
		c.begin(e)
	}
	list := c.byID[e.ID]
	for _, l := range [...]*[]others.Event{&c.First, &c.Answer} {
		// A packet that leaves by loopback comes back with another ID.
		if _, last := ends(*l); list == nil && e.Packet != nil && last == *e.Packet {
			list = l
		}
	}
	if list != nil {
		c.byID[e.ID] = list
		*list = append(*list, e)
	}
}

// begin notes a packet that the tracer's rules mark. They mark one first packet.
func (c *Collector) begin(e others.Event) {
	isFirst, isAnswer := e.Begins()
	first, last := ends(c.First)
	p := *e.Packet
	isToClient := p.Dest == last.Source || p.Dest == first.Source ||
		p.IsICMP() && (p.Dest.Addr() == last.Source.Addr() || p.Dest.Addr() == first.Source.Addr()) // ICMP has no ports
	isFromDest := p.Source == first.Dest || p.Source == last.Dest
	switch {
	case isFirst:
		c.byID[e.ID] = &c.First
	case isAnswer && len(c.Answer) == 0 && isToClient && (!e.Early() || isFromDest):
		c.byID[e.ID] = &c.Answer
	}
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

// complete reports whether nothing more is to come of the first packet and of its answer, if there is to be one.
func (c *Collector) complete() bool {
	first, answer := follow(c.First, nil, nil), follow(c.Answer, nil, nil)
	return first.complete() && (!first.verdict.arrived() || answer.complete())
}
