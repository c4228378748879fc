// Command mutate plants faults in vmapd, one at a time, and lets the simulation and the small worlds look for each.
//
//	mutate [-limit 1m] [-all] [-only REGEXP]
//
// It works in the folder of the module and does not change it: the go command gets the changed file by -overlay. It
// prints a table of the faults, of what found each, and of the processor time that took, without the compiler's. It fails if
// a fault was not found, or if a text to replace is not in its file exactly once.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"time"

	"golang.org/x/sys/unix"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("mutate", flag.ContinueOnError)
	flags.SetOutput(stderr)
	limit := flags.Duration("limit", time.Minute, "of processor time, for each search for a fault")
	all := flags.Bool("all", false, "go on with the other searches when one has found the fault")
	only := flags.String("only", "", "only the faults whose file or description this regular `expression` matches")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	matches, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := search(ctx, stdout, options{*limit, *all, matches}); err != nil {
		fmt.Fprintln(stderr, "mutate:", err)
		return 1
	}
	return 0
}

// options are those of the command line.
type options struct {
	limit time.Duration
	all   bool
	only  *regexp.Regexp
}

// search looks for the faults, and prints a line for each.
func search(ctx context.Context, to io.Writer, o options) error {
	for _, f := range faults {
		if _, err := f.planted("."); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	_, _ = fmt.Fprint(to, "| Fault | In |")
	for _, s := range searches {
		fmt.Fprintf(to, " %s |", s.name)
	}
	fmt.Fprintln(to, "\n|---|---|---|---|---|---|")
	missed := 0
	for _, f := range faults {
		if !o.only.MatchString(f.file + " " + f.what) {
			continue
		}
		found, err := f.find(ctx, to, dir, o)
		if err != nil {
			return err
		}
		if !found {
			missed++
		}
	}
	if missed > 0 {
		return fmt.Errorf("%d faults were not found", missed)
	}
	return nil
}
