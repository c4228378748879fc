// Command retry has an endpoint of a Service fall silent, and shows how long new connections to that Service wait: with
// connection retry, without it, and with kube-proxy.
//
//	make -C cmd/internal/testbed retry RUNS='session affinity' KUBE=DIR
//
// Each run has a new world in network namespaces ([lab]): an API server, a node with the proxy, and pods, of which the
// first drops all packets. Clients with many addresses are a pod, the node itself, and machines outside, which connect
// by node port and by the load balancer's address, over IPv4 and IPv6. Each of these opens 200 connections a second for
// 20 s, and waits for each one 10 s. The table has how long it took until a connection was open and answered.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"regexp"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/bench"
	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// What all runs have in common.
const (
	rate      = 200              // new connections a second, of each client and family
	addresses = 50               // of each client
	lasts     = 20 * time.Second // how long clients open connections
	within    = 10 * time.Second // how long they wait for an answer
)

// Proxies, in the order of the table.
const (
	withRetry    = "vmapd"
	withoutRetry = "vmapd without retry"
	kubeProxy    = "kube-proxy"
)

// run is one world.
type run struct {
	proxy, kind string
	endpoints   int
}

func (r *run) String() string { return fmt.Sprintf("%s | %s | %d", r.proxy, r.kind, r.endpoints) }

// plan are all runs.
func plan() (all []*run) {
	for _, kind := range []string{plain, affinity, maglev, local} {
		for _, n := range []int{2, 3, 10} {
			for _, proxy := range []string{withRetry, withoutRetry, kubeProxy} {
				if kind != maglev || proxy != kubeProxy {
					all = append(all, &run{proxy, kind, n})
				}
			}
		}
	}
	return all
}

func main() { lab.Main("retry", play) }

func play(ctx context.Context) error {
	only := regexp.MustCompile("")
	program := flag.String("kube-proxy", "", "`path` of a kube-proxy: run it beside vmapd, in mode nftables")
	flag.Func("only", "a regular expression of runs, as the table's first columns show them", func(s string) (err error) {
		only, err = regexp.Compile(s)
		return err
	})
	flag.Parse()
	fmt.Printf("%s; each client opens %d connections a second for %v, and waits %v.\n\n",
		bench.Machine(), rate, lasts, within)
	fmt.Println("| proxy | kind | endpoints | client | connections | failed " +
		"| below 0.5 s | 1 s | 2 s | 3 s | 4 to 7 s | later |")
	fmt.Println("|---|---|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|")
	var errs []error
	for _, r := range plan() {
		if !only.MatchString(r.String()) || *program == "" && r.proxy == kubeProxy {
			continue
		}
		if err := r.play(ctx, *program); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r, err))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return errors.Join(errs...)
}

// play builds the world of a run, has its clients connect, and prints a line for each.
func (r *run) play(ctx context.Context, kubeProxy string) (err error) {
	w, err := newWorld(ctx, kubeProxy, r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := w.settle(ctx); err != nil {
		return fmt.Errorf("%w; %s", err, w.Log())
	}
	if err := w.silence(ctx); err != nil {
		return err
	}
	var sum tally
	for i, report := range w.load(ctx) {
		n := count(&report)
		fmt.Printf("| %s | %s |%s\n", r, w.clients[i].name, n)
		for column := range sum {
			sum[column] += n[column]
		}
	}
	fmt.Printf("| %s | **all** |%s\n", r, sum)
	return nil
}

// tally has the columns: connections, failed, and those that waited less than half a second, one, two, three, four to
// seven seconds, and longer.
type tally [8]int

func count(r *lab.Report) tally {
	n := tally{r.Sent, r.Lost(), r.Sent - r.Lost()}
	for i, seconds := range []float64{0.5, 1.5, 2.5, 3.5, 7.5} {
		slower := r.Slower(time.Duration(seconds * float64(time.Second)))
		n[2+i] -= slower
		n[3+i] = slower
	}
	return n
}

func (n tally) String() (columns string) {
	for _, c := range n {
		columns += fmt.Sprintf(" %d |", c)
	}
	return columns
}
