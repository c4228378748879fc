package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// A record is what was measured of one shape, as it stands in the file of results: seconds, and bytes of memory.
type record struct {
	Proxy     string  `json:"proxy"`
	Cluster   string  `json:"cluster"`
	Services  int     `json:"services"`
	Endpoints int     `json:"endpoints"`
	Load      string  `json:"load"` // of the machine, before and after
	Ready     float64 `json:"ready"`
	Processor float64 `json:"processor,omitempty"` // until ready
	Peak      int64   `json:"peak"`
	Settled   int64   `json:"settled"`
	One       float64 `json:"one,omitempty"` // the median
	OneP99    float64 `json:"oneP99,omitempty"`
	Churn     float64 `json:"churn,omitempty"`
	ChurnP99  float64 `json:"churnP99,omitempty"`
	Restart   float64 `json:"restart,omitempty"`

	RestartPeak int64 `json:"restartPeak,omitempty"`

	wrong error // whatever the times are
}

// The values of Proxy.
const (
	vmapd     = "vmapd"
	kubeProxy = "kube-proxy, mode nftables"
)

// writeTable writes a row for each record.
func writeTable(w io.Writer, all []record) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "cluster\tload\tready s\tprocessor s\tpeak MB\tsettled MB\t"+
		"one ms p50\tp99\tof many p50\tp99\trestart s\tpeak MB\t")
	const ms, mb = 1e3, 1e6
	for _, r := range all {
		fmt.Fprintf(t, "%s\t%s\t%.2f\t%.2f\t%.0f\t%.0f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.0f\t\n",
			r.Cluster, r.Load, r.Ready, r.Processor, float64(r.Peak)/mb, float64(r.Settled)/mb,
			r.One*ms, r.OneP99*ms, r.Churn*ms, r.ChurnP99*ms, r.Restart, float64(r.RestartPeak)/mb)
	}
	_ = t.Flush() // as with Fprintf
}

func rounded(d time.Duration) float64 { return d.Round(10 * time.Microsecond).Seconds() }

// readRecords reads the file of results. It is no error if it is missing.
func readRecords(path string) ([]record, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []record
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("read the results so far from %s: %w", path, err)
	}
	return all, nil
}

// saveRecord writes a result into the file of results, in place of the one of the same cluster.
func saveRecord(path string, r record) error {
	all, err := readRecords(path)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(o record) bool { return o.Proxy == r.Proxy && o.Cluster == r.Cluster })
	all = append(all, r)
	slices.SortFunc(all, func(a, b record) int {
		return cmp.Or(
			cmp.Compare(b.Proxy, a.Proxy), cmp.Compare(a.Endpoints, b.Endpoints), cmp.Compare(a.Services, b.Services),
		)
	})
	text := []byte("[\n")
	for i, r := range all {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if i > 0 {
			text = append(text, ",\n"...)
		}
		text = append(text, line...)
	}
	if err := os.WriteFile(path, append(text, "\n]\n"...), 0o644); err != nil { //nolint:gosec // for everybody
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}
