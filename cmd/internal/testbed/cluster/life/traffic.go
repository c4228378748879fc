package life

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

const (
	rate    = 20                     // new connections per second of each route
	lasting = 5                      // connections of each route that last
	every   = 300 * time.Millisecond // a question on each lasting connection
	noticed = 900 * time.Millisecond // a connection that takes longer has lost its first packet
)

// patience is how long a client waits for an answer.
func patience(r lab.Path, _ bool) time.Duration {
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

	Broken int // lasting connections that ended, or over UDP questions without an answer
	Ended  int // lasting connections that ended with their pod, which are not in Broken

	Errors []string // the first of each kind
}

// startClients has clients connect by some routes.
func startClients(ctx context.Context, routes []lab.Path) *lab.Clients {
	from := map[string]*ports{}
	for _, r := range routes {
		from[r.Name] = newPorts(time.Now())
	}
	c := &lab.Clients{Rate: rate, Kept: lasting, Every: every, Within: patience}
	c.Ask = func(ctx context.Context, r lab.Path) (lab.Answer, error) { return ask(ctx, r, from[r.Name]) }
	c.Start(ctx, routes)
	return c
}

// count says what clients have seen. Lasting connections to a pod that is not alive ended with it, and did not break.
func count(all []lab.Seen, alive func(pod string) bool) (counts []Count) {
	for _, s := range all {
		c := Count{Route: s.Name, New: s.Sent, Lost: s.Lost(), Slow: s.Slower(noticed)}
		for _, err := range s.First {
			c.note(err)
		}
		for _, b := range s.Breaks {
			switch {
			case b.Pod != "" && !alive(b.Pod):
				c.Ended++
			case b.Pod != "" || s.Network == "udp": // otherwise it never came about, which new connections show
				c.Broken++
				c.note(b.Err)
			}
		}
		counts = append(counts, c)
	}
	return counts
}

// ask makes one connection, which the client closes first. It then remembers the connection's ports, and takes no port
// twice within a minute. A server can't do that for clients with translated addresses: one that looks the same to it is
// another one. A question over UDP has the next of the ports.
func ask(ctx context.Context, r lab.Path, from *ports) (lab.Answer, error) {
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

// note keeps the error if it is the first of its kind.
func (c *Count) note(err error) {
	kind := fmt.Sprintf("%s: ", lab.FailureOf(err))
	if !slices.ContainsFunc(c.Errors, func(e string) bool { return strings.HasPrefix(e, kind) }) {
		c.Errors = append(c.Errors, kind+err.Error())
	}
}
