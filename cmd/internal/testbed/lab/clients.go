package lab

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

// Path is one way of a client to pods.
type Path struct {
	Name    string
	From    *Namespace
	Network string // as for Ask
	To      netip.AddrPort
}

// Clients connect by some paths while something happens: to each at a rate, and by connections that are kept. One that
// breaks is replaced.
type Clients struct {
	Rate, Kept int           // new connections a second, and those that are kept, for each path
	Every      time.Duration // between two questions on a kept connection
	// Within is how long a client waits for an answer, on a connection that is kept or a new one.
	Within func(r Path, kept bool) time.Duration
	// Ask makes a new connection; nil: as Namespace.Ask does.
	Ask func(ctx context.Context, r Path) (Answer, error)

	stop context.CancelFunc
	wait sync.WaitGroup
	mu   sync.Mutex
	seen []Seen
}

// Seen is what the clients of a path have seen.
type Seen struct {
	Path
	Report // of new connections

	Asked  int // questions on kept connections
	Breaks []Break
}

// Break is the end of a kept connection, or over UDP a question without an answer.
type Break struct {
	Pod   string    // who answered before; empty: nobody
	Began time.Time // of the question
	Err   error
}

// Start has the clients connect until Stop.
func (c *Clients) Start(ctx context.Context, routes []Path) {
	ctx, c.stop = context.WithCancel(ctx)
	c.seen = make([]Seen, len(routes))
	for i, r := range routes {
		s := &c.seen[i]
		s.Path = r
		load := Load{Rate: c.Rate, Timeout: c.Within(r, false), Ask: func(ctx context.Context) (Answer, error) {
			if c.Ask != nil {
				return c.Ask(ctx, r)
			}
			return r.From.Ask(ctx, r.Network, r.To)
		}}
		c.wait.Go(func() { s.Report = load.Run(ctx) })
		for range c.Kept {
			c.wait.Go(func() {
				for ctx.Err() == nil {
					c.keep(ctx, s)
				}
			})
		}
	}
}

// Stop ends the clients, and waits for the last answers.
func (c *Clients) Stop() []Seen {
	c.stop()
	c.wait.Wait()
	return c.seen
}

// keep asks on one connection until it breaks.
func (c *Clients) keep(ctx context.Context, s *Seen) {
	within := c.Within(s.Path, true)
	dialing, done := context.WithTimeout(context.WithoutCancel(ctx), within)
	conn, err := s.From.Dial(dialing, s.Network, s.To)
	done()
	if err != nil { // the new connections show that, too
		_ = Pause(ctx, time.Second)
		return
	}
	defer conn.Close()
	pod := ""
	for ctx.Err() == nil {
		began := time.Now()
		asking, done := context.WithTimeout(context.WithoutCancel(ctx), within)
		a, err := conn.Ask(asking)
		done()
		c.mu.Lock()
		s.Asked++
		if err != nil {
			s.Breaks = append(s.Breaks, Break{pod, began, err})
		}
		c.mu.Unlock()
		if err != nil {
			_ = Pause(ctx, time.Second)
			return
		}
		pod = a.Pod
		_ = Pause(ctx, c.Every)
	}
}
