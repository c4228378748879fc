package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/routes"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/trace"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/others"
	"github.com/vmapd/vmapd/sync/conntrack"
)

// watching reads events until enough connections were told.
type watching struct {
	*tracing
	tracer    *others.Tracer
	finder    *conntrack.Finder
	tracking  *conntrack.Watch
	collector trace.Collector
	pending   map[*trace.Connection]*pending
	dialed    chan dialed
	own       *dialed // the connection that vmapd made, once it ended
}

// pending is a connection whose story is not complete.
type pending struct {
	seen    int       // events
	changed time.Time // when the last event came
	arrived time.Time // when the first packet's way was complete
	told    bool
	again   bool // events were missing when the story was told first
}

func newWatching(x *tracing) (*watching, error) {
	w := &watching{tracing: x, pending: map[*trace.Connection]*pending{}}
	if err := others.RemoveStaleTraces(); err != nil {
		return nil, err
	}
	var err error
	if w.finder, err = conntrack.NewFinder(); err != nil {
		return nil, err
	}
	if w.tracking, err = conntrack.NewWatch(0, x.filter.Protocol, x.filter.Source, x.filter.Dest); err == nil {
		w.tracer, err = others.StartTrace(x.filter)
	}
	if err != nil {
		w.close()
		return nil, err
	}
	w.collector.Table = w.tracer.Table()
	return w, nil
}

func (w *watching) close() {
	if w.tracer != nil {
		_ = w.tracer.Close() // at the latest, the kernel removes the table at the end of this process
	}
	if w.tracking != nil {
		w.tracking.Close()
	}
	w.finder.Close()
}

// pause is how long events of a packet take at most to follow one another.
const pause = 300 * time.Millisecond

// watch tells the stories of connections until there are enough, or until the time is over.
func (w *watching) watch(ctx context.Context, tell func(trace.Story) error, stderr io.Writer) (told int, err error) {
	end := time.Now().Add(w.timeout)
	if w.connect {
		w.dialed = make(chan dialed, 1)
		go func() { w.dialed <- w.dial(ctx) }()
	}
	for told < w.count {
		events, err := w.tracer.Read(ctx, time.Now().Add(pause/6))
		if err != nil {
			return told, err
		}
		for _, e := range events {
			w.collector.Add(e)
		}
		select {
		case d := <-w.dialed:
			w.own = &d
		default:
		}
		now := time.Now()
		for _, c := range w.collector.Connections() {
			if !w.isComplete(c, now) || told == w.count {
				continue
			}
			p := w.pending[c]
			s, err := w.story(ctx, c, stderr)
			if err == nil && s.Incomplete && !p.again { // on a busy processor, events come later than the pause is long
				p.again, p.changed = true, time.Now()
				continue
			}
			p.told = true
			if err == nil {
				err = tell(s)
			}
			if err != nil {
				return told, err
			}
			told++
		}
		switch {
		case w.own != nil && told < w.count && now.Sub(w.own.ended) > w.wait+pause && !w.underWay():
			if told == 0 {
				return 0, w.own.unseen()
			}
			return told, nil
		case now.After(end) && !w.underWay():
			return told, nil
		}
	}
	return told, nil
}

// underWay reports whether a connection is not told yet.
func (w *watching) underWay() bool {
	for c, p := range w.pending {
		if !p.told && (!w.connect || w.own == nil || w.isOwn(c)) {
			return true
		}
	}
	return false
}

func (w *watching) isOwn(c *trace.Connection) bool {
	return w.own != nil && c.Client.Port() == w.own.from
}

// isComplete reports whether nothing more is to come that the story needs.
func (w *watching) isComplete(c *trace.Connection, now time.Time) bool {
	p := w.pending[c]
	if p == nil {
		p = &pending{}
		w.pending[c] = p
	}
	if n := len(c.First) + len(c.Answer); n != p.seen {
		p.seen, p.changed = n, now
	}
	switch {
	case p.told, w.connect && !w.isOwn(c):
		return false
	case now.Sub(p.changed) < pause/6: // the rest of a packet's events is on its way
		return false
	}
	arrived, expects := c.Arrived()
	switch {
	case !arrived && p.again: // the answer may be missing, too
		return now.Sub(p.changed) > w.wait
	case !arrived:
		return now.Sub(p.changed) > pause
	case !expects:
		return true
	case p.arrived.IsZero():
		p.arrived = now
	}
	if len(c.Answer) == 0 {
		return now.Sub(p.arrived) > w.wait
	}
	return c.AnswerArrived() || now.Sub(p.changed) > pause
}

// story asks the kernel for the rest, and tells the story.
func (w *watching) story(ctx context.Context, c *trace.Connection, stderr io.Writer) (trace.Story, error) {
	in := trace.Input{First: c.First, Answer: c.Answer, Redirect: c.Redirect, Waited: w.wait}
	var err error
	if in.Interfaces, err = routes.Interfaces(); err != nil {
		return trace.Story{}, err
	}
	rules, err := others.ReadRuleset()
	if err != nil {
		return trace.Story{}, err
	}
	defer rules.Close()
	in.Bases, in.Lines = rules.Bases, rules.Lines(c.First, c.Answer)
	in.Early = rules.FiltersEarly(model.FamilyOf(c.Client.Addr()))
	first := trace.Tell(in)
	dest, arrival := first.Destination, ""
	if first.Hooks[0].Name == others.Prerouting {
		arrival = first.Hooks[0].In
	}
	var missing error
	if in.Tracking, missing = w.tracking.Of(c.Client); missing != nil {
		in.Untold = missing.Error()
	}
	e, found := conntrack.Latest(in.Tracking)
	if !found || missing != nil { // the flow is older, or the kernel sends no events (nf_conntrack_events)
		if e, found, err = w.finder.Find(w.filter.Protocol, c.Client, dest); err != nil {
			return trace.Story{}, err
		}
	}
	if found {
		in.Entry = &e
	}
	in.Expected = w.expected(ctx, c.Client.Addr(), arrival, dest, stderr)
	if w.isOwn(c) {
		in.Dialed, in.Succeeded = w.own.outcome(), w.own.err == nil
	}
	investigate(&in)
	return trace.Tell(in), nil
}

// investigate looks for the reason where no rule of nftables ended a packet's way.
func investigate(in *trace.Input) {
	s := trace.Tell(*in)
	family := model.FamilyOf(s.Destination.Addr())
	if s.Verdict == trace.Lost || s.Answer.Verdict == trace.Lost || s.IsUnexplained() {
		in.Suspects = others.Untraceable(family)
	}
	switch last := s.Hooks[len(s.Hooks)-1]; {
	case s.Verdict == trace.Lost && last.Name == others.Prerouting:
		in.Route = routes.NoRoute(s.SourceSeen.Addr(), s.Endpoint.Addr(), last.In, 0)
	case s.Verdict == trace.Forwarded && s.Answer.Kind != trace.Accepted:
		in.Neighbour = routes.NoNeighbour(s.Endpoint.Addr(), s.Out)
		if s.OnOneLink() {
			in.Bridge = routes.PastNetfilter(s.Out, family)
		}
	}
}

// dialed is the end of a connection that vmapd made.
type dialed struct {
	from  uint16 // the local port
	err   error
	ended time.Time
}

// dial makes a connection. The port is known before the first packet, also of a connection that
// fails.
func (w *watching) dial(ctx context.Context) (d dialed) {
	defer func() { d.ended = time.Now() }()
	ctx, cancel := context.WithTimeout(ctx, w.wait+time.Second)
	defer cancel()
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var bindErr error
		err := c.Control(func(fd uintptr) { d.from, bindErr = bind(int(fd), w.filter.Source, w.filter.Dest.Addr().Is6()) })
		return errors.Join(err, bindErr)
	}}
	network := "udp"
	if w.filter.Protocol == model.TCP {
		network = "tcp"
	}
	conn, err := dialer.DialContext(ctx, network, w.filter.Dest.String())
	if err != nil {
		d.err = err
		return d
	}
	defer conn.Close()
	if w.filter.Protocol != model.TCP {
		_ = conn.SetDeadline(time.Now().Add(w.wait))
		if _, d.err = conn.Write([]byte("\n")); d.err == nil {
			_, d.err = conn.Read(make([]byte, 1))
		}
	}
	return d
}

// bind chooses a port, so that it is known.
func bind(fd int, source netip.Addr, is6 bool) (uint16, error) {
	var at unix.Sockaddr = &unix.SockaddrInet4{}
	switch {
	case is6 && source.IsValid():
		at = &unix.SockaddrInet6{Addr: source.As16()}
	case is6:
		at = &unix.SockaddrInet6{}
	case source.IsValid():
		at = &unix.SockaddrInet4{Addr: source.As4()}
	}
	if err := unix.Bind(fd, at); err != nil {
		return 0, fmt.Errorf("--connect: %v is not an address of this node: %w", source, err)
	}
	bound, err := unix.Getsockname(fd)
	switch a := bound.(type) {
	case *unix.SockaddrInet4:
		return uint16(a.Port), err
	case *unix.SockaddrInet6:
		return uint16(a.Port), err
	}
	return 0, err
}

func (d *dialed) outcome() string {
	switch {
	case d.err == nil:
		return "it succeeded"
	case errors.Is(d.err, unix.ECONNREFUSED):
		return "refused"
	case errors.Is(d.err, os.ErrDeadlineExceeded), errors.Is(d.err, context.DeadlineExceeded):
		return "no answer in time"
	}
	return d.err.Error()
}

// unseen is the error of a connection of which no packet was traced.
func (d *dialed) unseen() error {
	if d.err != nil {
		return fmt.Errorf("no packet was sent: %w", d.err)
	}
	return errNotTraced
}
