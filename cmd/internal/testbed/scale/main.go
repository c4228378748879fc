package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

func main() {
	lab.Main("scale", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout, os.Stderr) })
}

// options are the values of the command line.
type options struct {
	shapes     []shape
	vmapd      string // path
	churn      time.Duration
	probes     int
	kubeProxy  string        // path; empty: vmapd is measured
	results    string        // path; empty: none
	throughput time.Duration // of one measurement; 0: starts and changes are measured
}

func parseOptions(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("scale", flag.ContinueOnError)
	flags.SetOutput(stderr)
	const all = "100x10,5000x50,44000x1,10000x100,100000x1"
	shapes := flags.String("shapes", all, "`list` of clusters: SERVICESxENDPOINTS")
	flags.StringVar(&o.vmapd, "vmapd", "bin/vmapd", "`path` of vmapd")
	flags.DurationVar(&o.churn, "churn", 20*time.Second, "for how long a thousand EndpointSlices a second are written")
	flags.IntVar(&o.probes, "probes", 500, "changes of one endpoint that are timed, alone and among others")
	flags.StringVar(&o.kubeProxy, "kube-proxy", "", "`path` of a kube-proxy: measure its start in place of vmapd")
	flags.StringVar(&o.results, "results", "", "`path` of a file that gets a line of JSON for each cluster")
	flags.DurationVar(&o.throughput, "throughput", 0, "measure for so long each, in whole seconds, what a client of one "+
		"pod gets, also through kube-proxy if there is one; no clusters")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 || o.probes < 1 {
		return nil, errors.New("-probes must be positive, and there are no arguments")
	}
	for text := range strings.SplitSeq(*shapes, ",") {
		s, err := parseShape(text)
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
	if o.throughput > 0 {
		return throughput(ctx, o, stdout)
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
			if err := save(o.results, r); err != nil {
				return fmt.Errorf("write the results: %w", err)
			}
		}
	}
	writeTable(stdout, all)
	return wrong
}

// A record is what was measured of one shape, as it stands in the file of results: seconds, and bytes of memory.
type record struct {
	Proxy       string  `json:"proxy"`
	Cluster     string  `json:"cluster"`
	Services    int     `json:"services"`
	Endpoints   int     `json:"endpoints"`
	Ready       float64 `json:"ready"`
	Peak        int64   `json:"peak"`
	One         float64 `json:"one,omitempty"` // the median
	OneP99      float64 `json:"oneP99,omitempty"`
	Churn       float64 `json:"churn,omitempty"`
	ChurnP99    float64 `json:"churnP99,omitempty"`
	Restart     float64 `json:"restart,omitempty"`
	RestartPeak int64   `json:"restartPeak,omitempty"`

	wrong error // whatever the times are
}

// writeTable writes a row for each record.
func writeTable(w io.Writer, all []record) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "cluster\tready s\tpeak MB\tone ms p50\tp99\tof many p50\tp99\trestart s\tpeak MB\t")
	const ms, mb = 1e3, 1e6
	for _, r := range all {
		fmt.Fprintf(t, "%s\t%.2f\t%.0f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.0f\t\n", r.Cluster, r.Ready, float64(r.Peak)/mb,
			r.One*ms, r.OneP99*ms, r.Churn*ms, r.ChurnP99*ms, r.Restart, float64(r.RestartPeak)/mb)
	}
	_ = t.Flush() // as with Fprintf
}

// save adds a line to the file of results.
func save(path string, r record) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(file).Encode(r), file.Close())
}

func rounded(d time.Duration) float64 { return d.Round(10 * time.Microsecond).Seconds() }
