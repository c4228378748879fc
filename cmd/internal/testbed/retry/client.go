package main

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// client is a machine with many addresses that connects to one address of the Service.
type client struct {
	name    string
	from    *lab.Namespace
	sources []netip.Addr
	to      netip.AddrPort
	dns     bool

	mu    sync.Mutex
	tally tally
}

// tally counts the connections of a client.
type tally struct {
	waits  []time.Duration // of those answered
	failed map[lab.Failure]int
}

func (t *tally) add(other *tally) {
	t.waits = append(t.waits, other.waits...)
	for kind, n := range other.failed {
		t.failed[kind] += n
	}
}

// buckets are how many waited less than half a second, one, two, three, four to seven seconds, and longer.
func (t *tally) buckets() (n [6]int) {
	for _, d := range t.waits {
		switch seconds := int(d.Round(time.Second) / time.Second); {
		case seconds < 4:
			n[seconds]++
		case seconds <= 7:
			n[4]++
		default:
			n[5]++
		}
	}
	return n
}

// String are columns: connections, failed, how many waited how long, the longest wait.
func (t *tally) String() string {
	var longest time.Duration
	for _, d := range t.waits {
		longest = max(longest, d)
	}
	failed, kinds := 0, ""
	for kind, n := range t.failed {
		failed += n
		if kind != lab.Timeout {
			kinds += fmt.Sprintf(" (%d %s)", n, kind)
		}
	}
	columns := []string{fmt.Sprintf("%d | %d%s", len(t.waits)+failed, failed, kinds)}
	for _, n := range t.buckets() {
		columns = append(columns, strconv.Itoa(n))
	}
	return strings.Join(append(columns, fmt.Sprintf("%.2f s", longest.Seconds())), " | ")
}

// load has a client connect from its addresses in turn.
func (c *client) load(ctx context.Context) {
	next := 0
	lab.Load{Rate: rate, Timeout: within, Ask: func(ctx context.Context) (lab.Answer, error) {
		c.mu.Lock()
		source := c.sources[next%len(c.sources)]
		next++
		c.mu.Unlock()
		took, pod, err := c.ask(ctx, source)
		c.mu.Lock()
		defer c.mu.Unlock()
		if err != nil {
			c.tally.failed[lab.FailureOf(err)]++
		} else {
			c.tally.waits = append(c.tally.waits, took)
		}
		return lab.Answer{Pod: pod}, err
	}}.Run(ctx)
}

// ask makes one connection, or asks three times as glibc does. It returns how long it took to connect, or to get an
// answer over UDP, and which pod answered.
func (c *client) ask(ctx context.Context, source netip.Addr) (took time.Duration, pod string, err error) {
	start, network := time.Now(), "tcp"
	if c.dns {
		network = "udp"
	}
	conn, err := c.from.DialFrom(ctx, netip.AddrPortFrom(source, 0), network, c.to)
	if err != nil {
		return 0, "", err
	}
	defer conn.Close()
	took = time.Since(start)
	var a lab.Answer
	if !c.dns {
		a, err = conn.Ask(ctx)
		return took, a.Pod, err
	}
	const queries, again = 3, 5 * time.Second
	for range queries {
		asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), again)
		a, err = conn.Ask(asking)
		cancel()
		if err == nil {
			break
		}
	}
	return time.Since(start), a.Pod, err
}
