package main

import (
	"cmp"
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
	kubeNFTables = "kube-proxy nftables"
	kubeIPTables = "kube-proxy iptables"
)

// run is one world.
type run struct {
	proxy, kind string
	endpoints   int
	fault       fault
}

func (r *run) String() string {
	return fmt.Sprintf("%s | %s | %d | %s", r.proxy, r.kind, r.endpoints, r.fault.name)
}

// faulty is how many endpoints are at fault.
func (r *run) faulty() int { return cmp.Or(r.fault.pods, r.endpoints) }

// plan are all runs.
func plan() (all []*run) {
	add := func(kind string, f fault, endpoints []int, proxies ...string) {
		for _, n := range endpoints {
			for _, proxy := range proxies {
				all = append(all, &run{proxy: proxy, kind: kind, endpoints: n, fault: f})
			}
		}
	}
	few, some, many := []int{3}, []int{2, 3}, []int{2, 3, 10}
	add(plain, silent(), many, withRetry, withoutRetry, kubeNFTables, kubeIPTables)
	add(affinity, silent(), many, withRetry, withoutRetry, kubeNFTables, kubeIPTables)
	add(maglev, silent(), many, withRetry, withoutRetry)
	add(local, silent(), many, withRetry, withoutRetry, kubeNFTables)
	add(dns, silent(), some, withRetry, withoutRetry, kubeNFTables)
	for _, f := range []fault{refuses(), lossy()} {
		add(plain, f, few, withRetry, withoutRetry)
		add(affinity, f, few, withRetry, withoutRetry)
	}
	add(plain, nodeDies(), []int{4}, withRetry, withoutRetry, kubeNFTables)
	add(affinity, nodeDies(), []int{4}, withRetry, withoutRetry, kubeNFTables)
	return all
}

func main() { lab.Main("retry", play) }

func play(ctx context.Context) error {
	only := regexp.MustCompile("")
	kubeProxy := flag.String("kube-proxy", "", "`path` of a kube-proxy: run it beside vmapd")
	flag.Func("only", "a regular expression of runs, as the table's first columns show them", func(s string) (err error) {
		only, err = regexp.Compile(s)
		return err
	})
	flag.Parse()
	fmt.Printf("%s; each client opens %d connections a second for %v, and waits %v.\n\n",
		bench.Machine(), rate, lasts, within)
	fmt.Println("| proxy | kind | endpoints | fault | client | connections | failed " +
		"| below 0.5 s | 1 s | 2 s | 3 s | 4 to 7 s | later | longest |")
	fmt.Println("|---|---|--:|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
	var errs []error
	for _, r := range plan() {
		byVmapd := r.proxy == withRetry || r.proxy == withoutRetry
		if !only.MatchString(r.String()) || *kubeProxy == "" && !byVmapd {
			continue
		}
		if err := r.play(ctx, *kubeProxy); err != nil {
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
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.settle(ctx); err != nil {
		return fmt.Errorf("%w; %s", err, w.Log())
	}
	if err := w.begin(ctx); err != nil {
		return err
	}
	w.load(ctx)
	sum := tally{failed: map[lab.Failure]int{}}
	for _, c := range w.clients {
		fmt.Printf("| %s | %s | %s |\n", r, c.name, &c.tally)
		sum.add(&c.tally)
	}
	fmt.Printf("| %s | **all** | %s |\n", r, &sum)
	return nil
}
