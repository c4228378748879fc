package life

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Results reads the results in a folder.
func Results(dir string) ([]Result, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []Result
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		var r Result
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("read the result %s: %w", f, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// sums are the counts of all routes together.
type sums struct{ made, lost, slow, lasted, broken, ended int }

func (r *Result) sums() sums {
	var s sums
	for _, c := range r.Counts {
		s.made += c.New
		s.lost += c.Lost
		s.slow += c.Slow
		s.lasted += lasting
		s.broken += c.Broken
		s.ended += c.Ended
	}
	return s
}

// Lost returns the number of connections that failed.
func (r *Result) Lost() int { s := r.sums(); return s.lost + s.broken }

// WriteTable writes the results of all proxies, a row for each step.
func WriteTable(w io.Writer, results []Result) {
	proxies := []string{}
	by := map[[2]string]Result{}
	for _, r := range results {
		by[[2]string{r.Step, r.Proxy}] = r
		if !slices.Contains(proxies, r.Proxy) {
			proxies = append(proxies, r.Proxy)
		}
	}
	// vmapd first.
	slices.SortFunc(proxies, func(a, b string) int {
		return cmp.Or(strings.Compare(fmt.Sprint(a != VMAPD), fmt.Sprint(b != VMAPD)), strings.Compare(a, b))
	})
	fmt.Fprintf(w, "| Step |")
	for _, p := range proxies {
		fmt.Fprintf(w, " %s: connections | lost | delayed | lasting | broken | ended with their pod |", p)
		if p == VMAPD {
			fmt.Fprintf(w, " tables equal | commit |")
		}
	}
	fmt.Fprintf(w, "\n|---|")
	for _, p := range proxies {
		fmt.Fprintf(w, "%s", strings.Repeat("--:|", 6))
		if p == VMAPD {
			fmt.Fprintf(w, "---|---|")
		}
	}
	fmt.Fprintln(w)
	for _, s := range Steps(VMAPD) {
		fmt.Fprintf(w, "| %s |", s.Name)
		for _, p := range proxies {
			r, ok := by[[2]string{s.Name, p}]
			if !ok {
				fmt.Fprintf(w, " %s", missing(s, p)+" |"+strings.Repeat(" |", 5))
			} else {
				n := r.sums()
				fmt.Fprintf(w, " %d | %d | %d | %d | %d | %d |", n.made, n.lost, n.slow, n.lasted, n.broken, n.ended)
			}
			if p == VMAPD {
				fmt.Fprintf(w, " %s | %s |", r.verdict(ok), r.Commit)
			}
		}
		fmt.Fprintln(w)
	}
}

// missing says why there is no result.
func missing(s Step, proxy string) string {
	if !slices.ContainsFunc(Steps(proxy), func(o Step) bool { return o.Name == s.Name }) {
		return "–"
	}
	return "not run"
}

func (r *Result) verdict(ok bool) string {
	switch {
	case !ok:
		return ""
	case r.Error != "":
		return "the step failed"
	case r.Different != "":
		return "no"
	case r.Compared:
		return "yes, after " + r.Same.Round(100*time.Millisecond).String()
	default:
		return "yes, and then removed"
	}
}

// Err returns the reason why the step is not as it should be, or nil.
func (r *Result) Err() error {
	switch {
	case r.Error != "":
		return fmt.Errorf("%s: %s", r.Step, r.Error)
	case r.Different != "":
		return fmt.Errorf("%s: %s", r.Step, r.Different)
	case r.Proxy == VMAPD && r.Lost() > 0:
		return fmt.Errorf("%s: %d connections lost", r.Step, r.Lost())
	}
	return nil
}

// String is some lines for people.
func (r *Result) String() string {
	var s strings.Builder
	n := r.sums()
	fmt.Fprintf(&s, "%s, %s: %v; %d connections, %d lost, %d delayed; %d lasting, %d broken, %d ended with their pod; tables: %s\n",
		r.Proxy, r.Step, r.Took.Round(time.Second), n.made, n.lost, n.slow, n.lasted, n.broken, n.ended, r.verdict(true))
	for _, c := range r.Counts {
		for _, e := range c.Errors {
			fmt.Fprintf(&s, "  %s: %d of %d lost, %d broken, after %.1f to %.1f s: %s\n",
				c.Route, c.Lost, c.New, c.Broken, c.From.Seconds(), c.Until.Seconds(), e)
		}
	}
	return s.String()
}

// WritePage writes the results as a page in Markdown.
func WritePage(w io.Writer, results []Result) {
	fmt.Fprintf(w, "%s", pageHead)
	WriteTable(w, results)
}

const pageHead = `# Life of a cluster

This table is made by ` + "`cluster life`" + ` (cmd/internal/testbed/cluster) in a cluster of real Kubernetes
programs. In each step, clients outside, in pods and on a node connect to node ports, load balancers'
addresses and cluster IPs, over TCP and UDP, IPv4 and IPv6, at a steady rate. The same steps with
kube-proxy show which losses are Kubernetes' own.

- **connections**: new ones over TCP, and single questions over UDP. **lost**: without an answer within
  10 s (UDP: 3 s). **delayed**: answered after more than 0.9 s, because a packet was sent again, or the
  machine, which has all nodes and clients, was busy: UDP packets are never sent again.
- **lasting**: TCP connections, and UDP sockets, with a question every 0.3 s. **broken**: the connection
  ended, or a question had no answer. **ended with their pod**: the same, and the pod was deleted in
  that step, which no proxy can help.
- **tables equal**: after the step, the rules in the kernel of each node are those that
  ` + "`vmapd render`" + ` makes of the objects that kubectl shows. Counters, remembered clients, unused chains
  and the order of endpoints are not compared. For conversions, the comparison is while vmapd
  serves; at the end, no rule of vmapd is left. **commit**: of vmapd, with which the step was done.

Questions over UDP come from ports in turn, none of which comes again within a quarter of an hour. Seven drains with vmapd so lost none
of 46,245 connections. In nine drains before, the kernel chose the ports, and three questions were lost. Drains that were repeated show
why. Connection tracking knows a question for 30 s, and sends another one from the same port to the same pod. The pods answer for 10 s
after SIGTERM. When one has ended, the EndpointSlice says so half a second later (the median on a busy machine; 1.6 s at most), and then
the proxy deletes its flows. No proxy can help before. With 100 questions a second on each of two routes, which makes 25 times as many
ports coincide, six drains with vmapd lost 66 of 38,792 questions, all by flows to a pod that had ended: 46 before the EndpointSlice
said so, 20 after. vmapd's pauses between deletions are shorter since; on a busier machine, three drains lost 33 of 21,599, 10 of them
after. kube-proxy lost 94 of 23,235 there, 76 of them after. From ports that do not come again, three drains with vmapd lost none of
19,796. What servers can do is in [OPERATION.md](OPERATION.md#connections-to-removed-endpoints).

After the restore of etcd, kube-proxy keeps endpoints that are gone until it is restarted, which is done
three seconds after that step; so its losses there would be more.

The steps "way A" and "way B" run the commands of [FROM-KUBE-PROXY.md](FROM-KUBE-PROXY.md), which are read
from that page.

`
