package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/bench"
	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// options are the flags.
type options struct {
	vmapd    string
	faults   *regexp.Regexp
	lasts    time.Duration // of faults that take a while
	patience time.Duration // for the recovery
	within   time.Duration // for an answer
	settles  time.Duration // how long clients connect before the fault, and after the recovery
	rate     int           // of new connections, a second and for each path to the Service
}

func main() { lab.Main("chaos", run) }

func run(ctx context.Context) error {
	o := options{vmapd: "bin/vmapd", faults: regexp.MustCompile(""), within: 3 * time.Second, rate: 50}
	flag.Func("faults", "a regular expression of names of faults (default all)", func(s string) (err error) {
		o.faults, err = regexp.Compile(s)
		return err
	})
	flag.DurationVar(&o.lasts, "lasts", 10*time.Second, "how long the faults last that take a while")
	flag.DurationVar(&o.patience, "patience", 2*time.Minute, "how long a recovery may take")
	flag.DurationVar(&o.settles, "settles", time.Second, "how long clients connect before a fault and after the recovery")
	flag.Parse()

	if !slices.ContainsFunc(faults(), func(f fault) bool { return o.faults.MatchString(f.name) }) {
		return fmt.Errorf("no fault has a name like %q", o.faults)
	}
	fmt.Printf("%s; faults that take a while last %v.\n\n", bench.Machine(), o.lasts)
	fmt.Println("| fault | backend | new | lost | kept | broken | wrong | recovered within |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	var errs []error
	var notes strings.Builder
	for _, f := range faults() {
		if !o.faults.MatchString(f.name) {
			continue
		}
		fmt.Fprintf(&notes, "- **%s**: %s.", f.name, f.does)
		if f.loses != "" {
			fmt.Fprintf(&notes, " Losses are by design: %s.", f.loses)
		}
		notes.WriteString("\n")
		for _, backend := range f.on() {
			r, err := play(ctx, &o, f, backend)
			if ctx.Err() != nil {
				return errors.Join(append(errs, ctx.Err())...)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s, %s: %w", f.name, backend, err))
			}
			fmt.Printf("| %s | %s | %d | %d | %d | %d | %d | %.2f s |\n", f.name, backend, r.sent, r.lost, r.kept,
				r.broken, r.wrong, r.recovered.Round(10*time.Millisecond).Seconds())
			if f.loses == "" && r.bad() {
				errs = append(errs, fmt.Errorf("%s, %s: lost something, the first: %w", f.name, backend, r.first))
			}
		}
	}
	fmt.Printf("\n%s", notes.String())
	return errors.Join(errs...)
}
