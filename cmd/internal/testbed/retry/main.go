package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/bench"
	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// options are the flags.
type options struct {
	vmapd, kubeProxy string // paths; an empty one of kube-proxy: without it
	picture          string
	only             *regexp.Regexp
	rate, clients    int
	parallel         int
	lasts, within    time.Duration
}

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
	annotated   bool // the Service turns retry off
	sum         tally
}

func (r *run) String() string {
	text := fmt.Sprintf("%s | %s | %d | %s", r.proxy, r.kind, r.endpoints, r.fault.name)
	if r.annotated {
		text += ", annotation"
	}
	return text
}

// plan are all runs.
func plan(o *options) (all []*run) {
	add := func(kind string, f fault, endpoints []int, proxies ...string) {
		for _, n := range endpoints {
			for _, proxy := range proxies {
				if o.kubeProxy != "" || proxy == withRetry || proxy == withoutRetry {
					all = append(all, &run{proxy: proxy, kind: kind, endpoints: n, fault: f})
				}
				if f.annotation && proxy == withRetry {
					all = append(all, &run{proxy: proxy, kind: kind, endpoints: n, fault: f, annotated: true})
				}
			}
		}
	}
	few, some, many := []int{3}, []int{2, 3}, []int{2, 3, 10}
	add(plain, silent(), many, withRetry, withoutRetry, kubeNFTables, kubeIPTables)
	add(affinity, silent(), many, withRetry, withoutRetry, kubeNFTables, kubeIPTables)
	add(maglev, silent(), many, withRetry, withoutRetry)
	add(local, silent(), many, withRetry, withoutRetry, kubeNFTables)
	add(dns, silent(), some, withRetry, withoutRetry, kubeNFTables)
	const soon, tooLate = 900 * time.Millisecond, 1500 * time.Millisecond
	for _, f := range []fault{queueFull(), refuses(), late(soon), late(tooLate), lossy()} {
		add(plain, f, few, withRetry, withoutRetry)
		add(affinity, f, few, withRetry, withoutRetry)
	}
	add(plain, allLate(tooLate), few, withRetry, withoutRetry)
	add(plain, nodeDies(), []int{4}, withRetry, withoutRetry, kubeNFTables)
	add(affinity, nodeDies(), []int{4}, withRetry, withoutRetry, kubeNFTables)
	return all
}

func main() {
	lab.Main("retry", func(ctx context.Context) error { return play(ctx, os.Args[1:], os.Stdout) })
}

func parse(args []string) (*options, error) {
	o := &options{only: regexp.MustCompile("")}
	flags := flag.NewFlagSet("retry", flag.ContinueOnError)
	flags.StringVar(&o.vmapd, "vmapd", "bin/vmapd", "`path` of vmapd")
	flags.StringVar(&o.kubeProxy, "kube-proxy", "", "`path` of a kube-proxy: run it beside vmapd")
	flags.StringVar(&o.picture, "picture", "", "`path` of a picture of the waits (SVG)")
	flags.IntVar(&o.rate, "rate", 200, "new connections a second, of each client and family")
	flags.IntVar(&o.clients, "clients", 50, "addresses of each client, at most 100")
	flags.IntVar(&o.parallel, "parallel", 1, "runs at a time")
	flags.DurationVar(&o.lasts, "lasts", 20*time.Second, "how long clients open connections")
	flags.DurationVar(&o.within, "within", 10*time.Second, "how long they wait for an answer")
	flags.Func("only", "a regular expression of runs, as the table's first columns show them", func(s string) (err error) {
		o.only, err = regexp.Compile(s)
		return err
	})
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	const most = 100
	if flags.NArg() > 0 || o.rate < 1 || o.parallel < 1 || o.clients < 1 || o.clients > most {
		return nil, errors.New("-rate and -parallel must be positive, -clients from 1 to 100, and there are no arguments")
	}
	return o, nil
}

func play(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s; each client opens %d connections a second for %v, and waits %v.\n\n",
		bench.Machine(), o.rate, o.lasts, o.within)
	fmt.Fprintln(out, "| proxy | kind | endpoints | fault | client | connections | failed "+
		"| below 0.5 s | 1 s | 2 s | 3 s | 4 to 7 s | later | longest | one before | one after | kept |")
	fmt.Fprintln(out, "|---|---|--:|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
	runs := slices.DeleteFunc(plan(o), func(r *run) bool { return !o.only.MatchString(r.String()) })
	texts, ends := make([]strings.Builder, len(runs)), make([]chan error, len(runs))
	for i := range ends {
		ends[i] = make(chan error, 1)
	}
	go func() {
		turn := make(chan struct{}, o.parallel)
		for i, r := range runs {
			turn <- struct{}{}
			go func() {
				ends[i] <- r.play(ctx, o, &texts[i])
				<-turn
			}()
		}
	}()
	var errs []error
	for i, r := range runs {
		if err := <-ends[i]; err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r, err))
		}
		fmt.Fprint(out, texts[i].String()) //nolint:errcheck // as the lines above
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if o.picture != "" {
		errs = append(errs, os.WriteFile(o.picture, []byte(picture(runs)), 0o644))
	}
	return errors.Join(errs...)
}

// play builds the world of a run, has its clients connect, and prints a line for each.
func (r *run) play(ctx context.Context, o *options, out io.Writer) (err error) {
	w, err := newWorld(ctx, o, r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.settle(ctx); err != nil {
		return fmt.Errorf("%w; %s", err, w.Log())
	}
	if err := r.fault.begin(ctx, w); err != nil {
		return err
	}
	w.load(ctx)
	for _, c := range w.clients {
		fmt.Fprintf(out, "| %s | %s | %s | %s |\n", r, c.name, &c.tally, c.stays(r.fault.pods))
		r.sum.add(&c.tally)
	}
	fmt.Fprintf(out, "| %s | **all** | %s | | | |\n", r, &r.sum)
	return nil
}
