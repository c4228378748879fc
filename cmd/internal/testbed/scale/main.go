package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/scale/cluster"
)

func main() {
	code, done, err := lab.Reexec()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	case done:
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be stopped
	}
}

// options are the values of the command line.
type options struct {
	shapes  []cluster.Shape
	vmapd   string // path
	rate    int    // changes per second
	churn   time.Duration
	probes  int
	settle  time.Duration
	results string // file; empty: none
	plot    string // file; empty: none

	kubeProxy   string // path; empty: vmapd is measured
	mode        string // of kube-proxy
	connections int    // rounds
}

func parseOptions(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("scale", flag.ContinueOnError)
	flags.SetOutput(stderr)
	shapes := flags.String("shapes", "100x10,5000x50,44000x1,10000x100,100000x1,realistic", "`list` of clusters: SERVICESxENDPOINTS, realistic, realistic:SERVICES")
	flags.StringVar(&o.vmapd, "vmapd", "bin/vmapd", "`path` of the daemon's binary")
	flags.IntVar(&o.rate, "rate", 1000, "EndpointSlices written per `second` while others are measured")
	flags.DurationVar(&o.churn, "churn", 20*time.Second, "for how long")
	flags.IntVar(&o.probes, "probes", 500, "changes of one endpoint that are timed, alone and among others")
	flags.DurationVar(&o.settle, "settle", 10*time.Second, "time between being ready and the settled memory")
	flags.StringVar(&o.kubeProxy, "kube-proxy", "", "`path` of a kube-proxy, whose start is measured in place of vmapd")
	flags.StringVar(&o.mode, "kube-proxy-mode", "nftables", "kube-proxy's `mode`: nftables or iptables")
	flags.IntVar(&o.connections, "connections", 0, "`rounds` of new connections, to servers directly and through a Service")
	flags.StringVar(&o.results, "results", "", "`file` in JSON to write the results into, in place of those of the same clusters")
	flags.StringVar(&o.plot, "plot", "", "`file` for a plot (SVG) of what is in -results; with -shapes=none, nothing is measured")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	for text := range strings.SplitSeq(*shapes, ",") {
		if text == "none" {
			continue
		}
		s, err := cluster.ParseShape(text)
		if err != nil {
			return nil, err
		}
		o.shapes = append(o.shapes, s)
	}
	if o.rate < 1 || o.probes < 1 {
		return nil, errors.New("-rate and -probes must be positive")
	}
	if o.plot != "" && o.results == "" {
		return nil, errors.New("-plot needs -results")
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parseOptions(args, stderr)
	if err != nil {
		return err
	}
	if _, err := os.Stat(o.vmapd); err != nil && len(o.shapes) > 0 && o.kubeProxy == "" {
		return fmt.Errorf("the daemon is missing, make build makes it: %w", err)
	}
	var results []*result
	for _, s := range o.shapes {
		var of record
		if o.kubeProxy != "" {
			if of, err = measureKubeProxy(ctx, o, s, stderr); err != nil {
				return fmt.Errorf("%v: %w", s, err)
			}
		} else {
			r, err := measure(ctx, o, s, stderr)
			if err != nil {
				return fmt.Errorf("%v: %w", s, err)
			}
			results = append(results, r)
			of = r.record()
		}
		if o.results != "" {
			if err := saveRecord(o.results, of); err != nil {
				return err
			}
		}
	}
	if len(results) > 0 {
		writeTable(stdout, results)
	}
	if o.plot != "" {
		if err := savePlot(o.plot, o.results); err != nil {
			return err
		}
	}
	for _, r := range results {
		if err := r.wrong(); err != nil {
			return fmt.Errorf("%v: %w", r.shape, err)
		}
	}
	return nil
}
