package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/scale/cluster"
)

func main() {
	lab.Main("scale", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout, os.Stderr) })
}

// options are the values of the command line.
type options struct {
	shapes    []cluster.Shape
	vmapd     string // path
	churn     time.Duration
	probes    int
	settle    time.Duration
	kubeProxy string // path; empty: vmapd is measured
	results   string // path without an ending; empty: none
}

func parseOptions(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("scale", flag.ContinueOnError)
	flags.SetOutput(stderr)
	const all = "100x10,5000x50,44000x1,10000x100,100000x1"
	shapes := flags.String("shapes", all, "`list` of clusters: SERVICESxENDPOINTS, or none")
	flags.StringVar(&o.vmapd, "vmapd", "bin/vmapd", "`path` of vmapd")
	flags.DurationVar(&o.churn, "churn", 20*time.Second, "for how long a thousand EndpointSlices a second are written")
	flags.IntVar(&o.probes, "probes", 500, "changes of one endpoint that are timed, alone and among others")
	flags.DurationVar(&o.settle, "settle", 10*time.Second, "time between being ready and the settled memory")
	flags.StringVar(&o.kubeProxy, "kube-proxy", "", "`path` of a kube-proxy: measure its start in place of vmapd")
	flags.StringVar(&o.results, "results", "", "`path` without .json and .svg: the file of all results, and its plot")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 || o.probes < 1 {
		return nil, errors.New("-probes must be positive, and there are no arguments")
	}
	if *shapes == "none" {
		return o, nil
	}
	for text := range strings.SplitSeq(*shapes, ",") {
		s, err := cluster.ParseShape(text)
		if err != nil {
			return nil, err
		}
		o.shapes = append(o.shapes, s)
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parseOptions(args, stderr)
	if err != nil {
		return err
	}
	var all []record
	var wrong error
	for _, s := range o.shapes {
		r, err := measure(ctx, o, s, stderr)
		if err != nil {
			return fmt.Errorf("%v: %w", s, err)
		}
		wrong = errors.Join(wrong, r.wrong)
		all = append(all, r)
		if o.results != "" {
			if err := saveRecord(o.results+".json", r); err != nil {
				return err
			}
		}
	}
	writeTable(stdout, all)
	if o.results != "" {
		wrong = errors.Join(wrong, savePlot(o.results))
	}
	return wrong
}
