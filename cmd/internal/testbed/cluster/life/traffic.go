package life

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

const (
	rate      = 20                     // new connections per second of each route
	lasting   = 5                      // connections of each route that last
	every     = 300 * time.Millisecond // a question on each lasting connection
	noticed   = 900 * time.Millisecond // a connection that takes longer has lost its first packet
	mostUnder = 300                    // connections in progress at once, of each route
)

// Route is one path of a client to the pods.
type Route struct {
	Name    string
	From    *lab.Namespace
	Network string // tcp or udp
	To      netip.AddrPort
}

// patience is how long a client waits for an answer.
func (r Route) patience() time.Duration {
	if r.Network == "udp" {
		return 3 * time.Second // nobody repeats its packets
	}
	return 10 * time.Second // a lost SYN is sent again after 1, 3 and 7 s
}

// Count is what happened to the connections of one route.
type Count struct {
	Route string
	New   int // new connections
	Lost  int // of them without an answer
	Slow  int // of them with an answer after a packet was repeated

	Asked  int // questions on lasting connections
	Broken int // lasting connections that ended, or over UDP questions without an answer
	Ended  int // lasting connections that ended with their pod, which are not in Broken

	Errors []string // the first of each kind
}

// Traffic is clients that connect until they are stopped.
type Traffic struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	mu     sync.Mutex
	counts []Count
	breaks [][]lost // by route
}

// lost is the end of a lasting connection.
type lost struct {
	pod string
	err error
}

// StartTraffic starts the clients of all routes.
func StartTraffic(ctx context.Context, routes []Route) *Traffic {
	ctx, cancel := context.WithCancel(ctx)
	t := &Traffic{cancel: cancel, counts: make([]Count, len(routes)), breaks: make([][]lost, len(routes))}
	for i, r := range routes {
		t.counts[i].Route = r.Name
		t.done.Go(func() { t.connect(ctx, i, r) })
		for range lasting {
			t.done.Go(func() { t.last(ctx, i, r) })
		}
	}
	return t
}

// Stop ends the clients. Lasting connections to a pod that is not alive ended with it, and did not break.
func (t *Traffic) Stop(alive func(pod string) bool) []Count {
	t.cancel()
	t.done.Wait()
	for i, breaks := range t.breaks {
		c := &t.counts[i]
		for _, b := range breaks {
			if b.pod != "" && !alive(b.pod) {
				c.Ended++
				continue
			}
			c.Broken++
			c.note(b.err)
		}
	}
	return t.counts
}

// connect makes new connections.
func (t *Traffic) connect(ctx context.Context, i int, r Route) {
	from := newPorts(time.Now())
	load := lab.Load{Rate: rate, Timeout: r.patience(), Limit: mostUnder}
	load.Ask = func(ctx context.Context) (lab.Answer, error) {
		answer, err := ask(ctx, r, from)
		if err != nil {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.counts[i].note(err)
		}
		return answer, err
	}
	report := load.Run(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &t.counts[i]
	c.New, c.Lost, c.Slow = report.Sent, report.Lost(), report.Slower(noticed)
}

// ask makes one connection, which the client closes first. It then remembers the connection's ports, and takes no port
// twice within a minute. A server can't do that for clients with translated addresses: one that looks the same to it is
// another one. A question over UDP has the next of the ports.
func ask(ctx context.Context, r Route, from *ports) (lab.Answer, error) {
	source := netip.AddrPort{}
	if r.Network == "udp" {
		source = from.next(r.To.Addr())
	}
	c, err := r.From.DialFrom(ctx, source, r.Network, r.To)
	if err != nil {
		return lab.Answer{}, err
	}
	defer c.Close()
	return c.Ask(ctx)
}

// last keeps one connection at a time.
func (t *Traffic) last(ctx context.Context, i int, r Route) {
	for ctx.Err() == nil {
		dialCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.patience())
		c, err := r.From.Dial(dialCtx, r.Network, r.To)
		cancel()
		if err == nil {
			err = t.talk(ctx, i, r, c)
			c.Close()
		}
		if err != nil { // a connection that does not come about is counted by connect
			_ = lab.Pause(ctx, time.Second)
		}
	}
}

// talk asks on one connection until it breaks.
func (t *Traffic) talk(ctx context.Context, i int, r Route, c *lab.Conn) error {
	pod := ""
	for ctx.Err() == nil {
		askCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.patience())
		answer, err := c.Ask(askCtx)
		cancel()
		t.mu.Lock()
		t.counts[i].Asked++
		if err != nil && (pod != "" || r.Network == "udp") {
			t.breaks[i] = append(t.breaks[i], lost{pod, err})
		}
		t.mu.Unlock()
		if err != nil {
			return err
		}
		pod = answer.Pod
		_ = lab.Pause(ctx, every)
	}
	return nil
}

// note keeps the error if it is the first of its kind.
func (c *Count) note(err error) {
	kind := fmt.Sprintf("%s: ", lab.FailureOf(err))
	if !slices.ContainsFunc(c.Errors, func(e string) bool { return strings.HasPrefix(e, kind) }) {
		c.Errors = append(c.Errors, kind+err.Error())
	}
}
