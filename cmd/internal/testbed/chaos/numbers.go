package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// numbers are those of the death of a Node. What was answered earlier is in the field before only. A connection that is
// open when its endpoint dies is lost with every proxy: it is cut, and not lost.
type numbers struct {
	tcp, lost, cut, udp, udpLost int
	slowest                      time.Duration // over TCP
	before, after                time.Duration // 99th percentiles over TCP; after is from 2.5 s after the death on
}

func (r *result) numbers() (n numbers) {
	var before, after []time.Duration
	for _, a := range r.asked {
		at, lost := a.began.Sub(r.began), 0
		if a.pod == "" {
			lost = 1
		}
		switch {
		case a.udp():
			n.udp++
			n.udpLost += lost
			continue
		case at+a.took < 0:
			before = append(before, a.took)
			continue
		case at >= 2500*time.Millisecond && a.began.Before(r.ended):
			after = append(after, a.took)
		}
		n.tcp++
		if a.open && a.began.Before(r.died) {
			n.cut++
			continue
		}
		n.lost += lost
		n.slowest = max(n.slowest, a.took)
	}
	slices.Sort(before)
	slices.Sort(after)
	n.before, n.after = lab.Percentile(before, 99), lab.Percentile(after, 99)
	return n
}

// numbers prints those of the death of a Node.
func (t *table) numbers() {
	if len(t.deaths) > 0 {
		fmt.Fprintln(t.out, "\n| node dies | TCP | lost | cut | slowest | p99 before | p99 from 2.5 s on | UDP | lost |")
		fmt.Fprintln(t.out, "|---|---|---|---|---|---|---|---|---|")
	}
	for _, r := range t.deaths {
		n := r.numbers()
		fmt.Fprintf(t.out, "| %s | %d | %d | %d | %.2f s | %.3f s | %.3f s | %d | %d |\n", r.backend, n.tcp, n.lost, n.cut,
			n.slowest.Seconds(), n.before.Seconds(), n.after.Seconds(), n.udp, n.udpLost)
	}
}
