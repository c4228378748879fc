package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// options are the flags.
type options struct {
	vmapd     string
	kubeProxy string // path; empty: there is none
	timeline  string // path; empty: none
	faults    *regexp.Regexp
	rounds    int
	lasts     time.Duration // of faults that take a while
	patience  time.Duration // for the recovery
	within    time.Duration // for an answer
	settles   time.Duration // how long clients connect before the fault, and after the recovery
	rate      int           // of new connections, a second and for each path to the Service
}

func main() { lab.Main("chaos", run) }

func run(ctx context.Context) error {
	o := options{vmapd: "bin/vmapd", faults: regexp.MustCompile(""), within: 3 * time.Second, rate: 50}
	flag.Func("faults", "a regular expression of names of faults (default all)", func(s string) (err error) {
		o.faults, err = regexp.Compile(s)
		return err
	})
	flag.IntVar(&o.rounds, "rounds", 1, "rounds of each fault, which add up")
	flag.DurationVar(&o.lasts, "lasts", 10*time.Second, "how long the faults last that take a while")
	flag.DurationVar(&o.patience, "patience", 2*time.Minute, "how long a recovery may take")
	flag.DurationVar(&o.settles, "settles", time.Second, "how long clients connect before a fault and after the recovery")
	flag.StringVar(&o.kubeProxy, "kube-proxy", "", "`path` of a kube-proxy: play the fault \"node dies\" with it, too")
	flag.StringVar(&o.timeline, "timeline", "", "`path` of an SVG of the fault \"node dies\"")
	flag.Parse()

	if !slices.ContainsFunc(faults(), func(f fault) bool { return o.faults.MatchString(f.name) }) {
		return fmt.Errorf("no fault has a name like %q", o.faults)
	}
	t := table{out: os.Stdout}
	t.head(&o)
	var errs []error
	for _, f := range faults() {
		if !o.faults.MatchString(f.name) {
			continue
		}
		for _, backend := range f.on(&o) {
			var sum result
			for range o.rounds {
				r, err := play(ctx, &o, f, backend)
				if ctx.Err() != nil {
					return errors.Join(append(errs, ctx.Err())...)
				}
				if err != nil {
					errs = append(errs, fmt.Errorf("%s, %s: %w", f.name, backend, err))
				}
				sum.add(r)
			}
			t.row(f, backend, &sum)
			if f.loses == "" && sum.bad() {
				errs = append(errs, fmt.Errorf("%s, %s: lost something, the first: %w", f.name, backend, sum.first))
			}
		}
	}
	t.foot()
	if o.timeline != "" {
		errs = append(errs, os.WriteFile(o.timeline, []byte(timeline(&o, t.deaths)), 0o644)) //nolint:gosec // for everybody
	}
	return errors.Join(errs...)
}
