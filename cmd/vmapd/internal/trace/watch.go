package trace

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/explain"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/others"
	"github.com/vmapd/vmapd/nft/tracer"
)

// Watch is a task: to follow a connection.
type Watch struct {
	Filter  tracer.Filter // Lifetime and the port of a connection of its own are set by Run
	Timeout time.Duration // for the first packet
	Wait    time.Duration // for an answer
	// Connect makes the connection, if it is not one of SCTP, and if the client's network namespace is visible.
	Connect bool
	All     bool // rules of vmapd's that decide nothing have a text, too, and are not folded
	// Expect returns vmapd's decision about a connection that came in by an interface, or by none; nil: not known.
	Expect func(ctx context.Context, client netip.Addr, in string, dest netip.AddrPort) *explain.Explanation
	// Waits is called before the wait for somebody else's connection.
	Waits func()
	// Unseen is called if vmapd can't connect as the client: it sees no network namespace with the address.
	Unseen func()

	from  *os.File          // the client's network namespace; nil: that of this process
	names map[uint32]string // of interfaces
	in    Input
}

// Run reports on the connection that it makes, or on the next one that somebody makes.
func (t Watch) Run(ctx context.Context) (s Story, err error) {
	t.Filter.Lifetime = t.Timeout + t.Wait + time.Second
	t.Connect = t.Connect && t.Filter.Protocol != model.SCTP
	if client := t.Filter.Source.Addr(); t.Connect && client.IsValid() {
		if t.from, t.in.Namespace, t.Connect = findNamespace(client); !t.Connect {
			t.Unseen()
		}
		defer t.from.Close()
	}
	if t.Connect {
		t.in.Namespace = cmp.Or(t.in.Namespace, thisNode)
		if err := t.choosePort(); err != nil {
			return s, fmt.Errorf("no packet was sent: %w", err)
		}
	}
	links, err := net.Interfaces()
	if err != nil {
		return s, fmt.Errorf("list interfaces: %w", err)
	}
	t.names = map[uint32]string{}
	for _, l := range links {
		t.names[uint32(l.Index)] = l.Name
	}
	running, err := tracer.Start(t.Filter)
	if err != nil {
		return s, err
	}
	defer func() { _ = running.Close() }() // at the latest, the kernel removes the table at the end of this process
	c := &Collector{Table: running.Table()}
	if err := t.watch(ctx, running, c); err != nil {
		return s, err
	}
	if err := t.ask(ctx, c); err != nil {
		return s, err
	}
	return NewStory(t.in), nil
}

// watch reads events until those of a connection are complete, or the time is over.
func (t *Watch) watch(ctx context.Context, running *tracer.Tracer, c *Collector) error {
	const pause = 50 * time.Millisecond // events of a packet follow one another without one
	over, isSeen, done := time.Now().Add(t.Timeout), false, make(chan error, 1)
	dialing, cancel := context.WithCancel(ctx)
	defer cancel()
	if t.Connect {
		go func() { done <- t.dial(dialing) }()
	} else {
		t.Waits()
	}
	var dialErr error
	for {
		events, err := running.Read(ctx, time.Now().Add(pause))
		if err != nil {
			return err
		}
		for _, e := range events {
			c.Add(e)
		}
		if !isSeen && len(c.First) > 0 {
			isSeen, over = true, time.Now().Add(t.Wait)
		}
		isQuiet, isOver := len(events) == 0, time.Now().After(over)
		complete, ended := c.complete()
		if first := follow(c.First, nil, t.names); isSeen && isQuiet && (ended || first.noRoute() != "") {
			return nil // nothing more can come, whatever the client still waits for
		}
		if t.Connect && t.in.Dialed == "" {
			select {
			case dialErr = <-done: // in time
				t.in.Dialed = outcome(dialErr)
			default:
			}
			continue // with the events until then
		}
		switch {
		case isSeen && (isOver || isQuiet && complete):
			return nil
		case isSeen:
		case t.Connect && isQuiet:
			return t.unseen(dialErr)
		case !t.Connect && isOver:
			return fmt.Errorf("no new connection to %v has come to this node within %v", t.Filter.Dest, t.Timeout)
		}
	}
}

func (t *Watch) ask(ctx context.Context, c *Collector) error {
	in := &t.in
	rules, err := others.ReadRuleset()
	if err != nil {
		return err
	}
	line := func(e tracer.Event) others.Line {
		l := others.Rule(e.Place, e.Rule)
		decides := !e.Place.IsVmapds() || endOf[e.Code] != ""
		if (decides || t.All) && (verdictText(e) != "" || l.Marks || l.Untracks) {
			var err error
			if l.Text, err = rules.Text(ctx, l); err != nil {
				in.NoText = err.Error()
			}
		}
		return l
	}
	in.First, in.Answer, in.Silent = follow(c.First, line, t.names), follow(c.Answer, line, t.names), c.Silent
	p := &in.First
	first, last, arrival := p.first, p.last, p.arrival()
	family := model.FamilyOf(first.Dest.Addr())
	in.Waited, in.Expected = t.Wait, t.Expect(ctx, first.Source.Addr(), arrival, first.Dest)
	if p.isUnexplained() || in.Answer.isUnexplained() {
		legacy, _ := host.LegacyTables(family)
		in.Suspects = others.Untraceable(family, legacy)
	}
	if last.Dest != first.Dest && !isVmapds(p.dnat) && in.Expected != nil && in.Expected.Service == "" {
		second := t.Expect(ctx, first.Source.Addr(), arrival, last.Dest)
		if second != nil && second.Service != "" && second.Verdict == report.Forwarded {
			in.Second = second
		}
	}
	if in.Route = p.noRoute(); p.verdict == Forwarded {
		in.Neighbour = noNeighbour(last.Dest.Addr(), p.out)
		isBack := last.Dest != first.Dest && last.Source == first.Source && arrival == p.out
		if why := pastNetfilter(p.out, family); isBack && in.Neighbour == "" && why != "" {
			in.Bridge = "an answer takes that bridge past netfilter (" + why + "): " + replaced(last.Dest, first.Dest)
		}
	}
	return nil
}

// Collector keeps the events of a connection: of its first packet, and of the first one of the other direction. It
// takes those that its tracer's rules have begun: other programs may trace other packets at the same time.
type Collector struct {
	Table         string // of the tracer
	First, Answer []tracer.Event
	Silent        []netip.AddrPort // to which earlier first packets were translated: First is the last one

	byID map[uint32]*[]tracer.Event
}

// Add takes the next event.
func (c *Collector) Add(e tracer.Event) {
	if c.byID == nil {
		c.byID = map[uint32]*[]tracer.Event{}
	}
	if e.Place.Table == c.Table && e.Packet != nil {
		c.begin(e)
	}
	// A packet that leaves by loopback comes back with another ID. With br_netfilter, the kernel gives a packet another ID
	// behind prerouting.
	hook, _ := e.Stage()
	isLater := e.In == loopback || e.Place.IsTracers() && hook != others.Prerouting && hook != others.Output
	list := c.byID[e.ID]
	if list == nil && e.Packet != nil && isLater {
		for _, l := range [...]*[]tracer.Event{&c.First, &c.Answer} {
			if p := follow(*l, nil, nil); p.last == *e.Packet {
				list = l
			}
		}
	}
	if list != nil {
		c.byID[e.ID] = list
		*list = append(*list, e)
	}
}

// begin notes a packet that the tracer's rules mark. They mark the first packets of one connection.
func (c *Collector) begin(e tracer.Event) {
	isFirst, p := e.Matches(tracer.First), *e.Packet
	before := follow(c.First, nil, nil)
	first, last := before.first, before.last
	isToClient := p.Dest == last.Source || p.Dest == first.Source ||
		p.IsICMP() && (p.Dest.Addr() == last.Source.Addr() || p.Dest.Addr() == first.Source.Addr()) // ICMP has no ports
	isFromDest := p.Source == first.Dest || p.Source == last.Dest
	isAnswer := isToClient && (e.Matches(tracer.Answer) || isFromDest && e.Matches(tracer.EarlyAnswer))
	switch {
	case isFirst && len(c.First) == 0:
		c.byID[e.ID] = &c.First
	case isFirst && e.In != loopback && first.Dest != last.Dest:
		if before.verdict.arrived() {
			c.Silent = append(c.Silent, last.Dest)
		}
		c.First, c.byID = nil, map[uint32]*[]tracer.Event{e.ID: &c.First}
	case isFirst: // the same one, or one that is sent again for another reason
	case isAnswer && len(c.Answer) == 0:
		c.byID[e.ID] = &c.Answer
	}
}

// complete reports whether nothing more is to come of the first packet and of its answer, if there is to be one; ended:
// one of them ended on this node, so that the client gets nothing.
func (c *Collector) complete() (complete, ended bool) {
	last := follow(c.First, nil, nil)
	if last.complete() && last.verdict.arrived() {
		last = follow(c.Answer, nil, nil)
	}
	return last.complete(), last.complete() && last.verdict == Dropped
}
