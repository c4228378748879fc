package trace

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/routes"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/others"
	"github.com/vmapd/vmapd/sync/conntrack"
)

// Watch is a task: to tell stories of connections until there are enough.
type Watch struct {
	Filter  others.Filter // Count and Lifetime are set by Run
	Count   int
	Timeout time.Duration // for the first packet
	Wait    time.Duration // for an answer
	// Connect makes a connection, from the network namespace From or, if that is nil, from that of this process.
	Connect bool
	From    *os.File
	// Expect returns vmapd's decision about a client's connection that came in by an interface, or by none; nil: not known.
	Expect func(ctx context.Context, client netip.Addr, in string, dest netip.AddrPort) *Expected
	Tell   func(Story) error
	// Left is called about each second with the time that is left for the first packet.
	Left func(time.Duration)
}

// watcher reads events until enough connections were told.
type watcher struct {
	Watch
	tracer    *others.Tracer
	tracked   conntrack.Lister
	tracking  *conntrack.Watch
	collector Collector
	pending   map[*Connection]*pending
	dialed    chan dialed
	own       *dialed // the connection that vmapd made, once it ended
}

// pending is a connection whose story is not complete.
type pending struct {
	seen    int       // events
	changed time.Time // when the last event came
	arrived time.Time // when the first packet's path was complete
	told    bool
	again   bool // events were missing when the story was told first
}

// Run tells stories until there are enough, or until the time is over, and returns their number.
func (t Watch) Run(ctx context.Context) (told int, err error) {
	const further = 16 // may connect to the same destination while vmapd does
	t.Filter.Lifetime, t.Filter.Count = t.Timeout+t.Wait+time.Second, t.Count
	if t.Connect {
		t.Filter.Count += further
	}
	w := &watcher{Watch: t, pending: map[*Connection]*pending{}}
	defer w.close()
	if err := others.RemoveStaleTraces(); err != nil {
		return 0, err
	}
	if w.tracking, err = conntrack.NewWatch(0, t.Filter.Protocol, t.Filter.Source, t.Filter.Dest); err != nil {
		return 0, err
	}
	if w.tracer, err = others.StartTrace(w.Filter); err != nil {
		return 0, err
	}
	w.collector.Table = w.tracer.Table()
	return w.run(ctx)
}

func (w *watcher) close() {
	if w.tracer != nil {
		_ = w.tracer.Close() // at the latest, the kernel removes the table at the end of this process
	}
	if w.tracking != nil {
		w.tracking.Close()
	}
}

// pause is how long events of a packet take at most to follow one another.
const pause = 300 * time.Millisecond

func (w *watcher) run(ctx context.Context) (told int, err error) {
	end, said := time.Now().Add(w.Timeout), time.Time{}
	if w.Connect {
		w.dialed = make(chan dialed, 1)
		go func() { w.dialed <- w.dial(ctx) }()
	}
	for told < w.Count {
		if !w.Connect && time.Since(said) >= time.Second {
			w.Left(time.Until(end))
			said = time.Now()
		}
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
			if told == w.Count || !w.isComplete(c, now) {
				continue
			}
			is, err := w.tell(ctx, c)
			if err != nil {
				return told, err
			}
			if is {
				told++
			}
		}
		switch {
		case w.own != nil && told < w.Count && now.Sub(w.own.ended) > w.Wait+pause && !w.underWay():
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

// tell tells the story of a connection, or puts it off: on a busy processor, events come later than the pause is long.
func (w *watcher) tell(ctx context.Context, c *Connection) (told bool, err error) {
	p := w.pending[c]
	s, err := w.story(ctx, c)
	if err == nil && s.Incomplete && !p.again {
		p.again, p.changed = true, time.Now()
		return false, nil
	}
	p.told = true
	if err == nil {
		err = w.Tell(s)
	}
	return err == nil, err
}

// underWay reports whether a connection is not told yet.
func (w *watcher) underWay() bool {
	for c, p := range w.pending {
		if !p.told && (!w.Connect || w.own == nil || w.isOwn(c)) {
			return true
		}
	}
	return false
}

func (w *watcher) isOwn(c *Connection) bool { return w.own != nil && c.Client.Port() == w.own.from }

// isComplete reports whether nothing more is to come that the story needs.
func (w *watcher) isComplete(c *Connection, now time.Time) bool {
	p := w.pending[c]
	if p == nil {
		p = &pending{}
		w.pending[c] = p
	}
	if n := len(c.First) + len(c.Answer); n != p.seen {
		p.seen, p.changed = n, now
	}
	switch {
	case p.told, w.Connect && !w.isOwn(c):
		return false
	case now.Sub(p.changed) < pause/6: // the rest of a packet's events is still to come
		return false
	}
	arrived, expects := c.Arrived()
	switch {
	case !arrived && p.again: // the answer may be missing, too
		return now.Sub(p.changed) > w.Wait
	case !arrived:
		return now.Sub(p.changed) > pause
	case !expects:
		return true
	case p.arrived.IsZero():
		p.arrived = now
	}
	if len(c.Answer) == 0 {
		return now.Sub(p.arrived) > w.Wait
	}
	return c.AnswerArrived() || now.Sub(p.changed) > pause
}

// story asks the kernel for the rest, and makes the story.
func (w *watcher) story(ctx context.Context, c *Connection) (Story, error) {
	in := Input{First: c.First, Answer: c.Answer, Redirect: c.Redirect, Waited: w.Wait}
	var err error
	if in.Interfaces, err = routes.Interfaces(); err != nil {
		return Story{}, err
	}
	rules, err := others.ReadRuleset()
	if err != nil {
		return Story{}, err
	}
	defer rules.Close()
	in.Bases, in.Lines = rules.Bases, rules.Lines(c.First, c.Answer)
	in.Early = rules.FiltersEarly(model.FamilyOf(c.Client.Addr()))
	first := Tell(in)
	arrival := ""
	if first.Hooks[0].Name == others.Prerouting {
		arrival = first.Hooks[0].In
	}
	var missing error
	if in.Tracking, missing = w.tracking.Of(c.Client); missing != nil {
		in.Untold = missing.Error()
	}
	e, found := conntrack.Latest(in.Tracking)
	if !found || missing != nil { // the flow is older, or the kernel sends no events (nf_conntrack_events)
		if e, found, err = w.tracked.Find(ctx, w.Filter.Protocol, c.Client, first.Destination); err != nil {
			return Story{}, err
		}
	}
	if found {
		in.Entry = &e
	}
	in.Expected = w.Expect(ctx, c.Client.Addr(), arrival, first.Destination)
	if w.isOwn(c) {
		in.Dialed, in.Succeeded = w.own.outcome(), w.own.err == nil
	}
	investigate(&in)
	return Tell(in), nil
}

// investigate looks for the reason where no rule of nftables ended a packet's path.
func investigate(in *Input) {
	s := Tell(*in)
	family := model.FamilyOf(s.Destination.Addr())
	if s.Verdict == Lost || s.Answer.Verdict == Lost || s.IsUnexplained() {
		in.Suspects = others.Untraceable(family)
	}
	switch last := s.Hooks[len(s.Hooks)-1]; {
	case s.Verdict == Lost && last.Name == others.Prerouting:
		in.Route = routes.NoRoute(s.SourceSeen.Addr(), s.Endpoint.Addr(), last.In, 0)
	case s.Verdict == Forwarded && s.Answer.Kind != Accepted:
		in.Neighbour = routes.NoNeighbour(s.Endpoint.Addr(), s.Out)
		if s.OnOneLink() {
			in.Bridge = routes.PastNetfilter(s.Out, family)
		}
	}
}

// unseen is the error of a connection of which no packet was traced.
func (d *dialed) unseen() error {
	if d.err != nil {
		return fmt.Errorf("no packet was sent: %w", d.err)
	}
	return errNotTraced
}
