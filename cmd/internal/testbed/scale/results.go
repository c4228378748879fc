package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/scale/cluster"
)

// A record is a result as it stands in the file of results: seconds, and bytes of memory.
type record struct {
	Proxy     string  `json:"proxy"`
	Cluster   string  `json:"cluster"`
	Services  int     `json:"services"`
	Endpoints int     `json:"endpoints"`
	Load      string  `json:"load"` // of the machine, before and after
	Listed    float64 `json:"listed,omitempty"`
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
}

const vmapd = "vmapd"

func (r *result) record() record {
	return record{
		Proxy: vmapd, Cluster: r.shape.String(), Services: r.size.Services, Endpoints: r.size.Endpoints, Load: r.load,
		Listed: rounded(r.cold.listed), Ready: rounded(r.cold.ready), Processor: rounded(r.cold.user + r.cold.system),
		Peak: r.peak, Settled: r.settled,
		One: rounded(r.idle.p50), OneP99: rounded(r.idle.p99), Churn: rounded(r.churn.p50), ChurnP99: rounded(r.churn.p99),
		Restart: rounded(r.restart.ready), RestartPeak: r.restart.peak,
	}
}

func rounded(d time.Duration) float64 { return d.Round(10 * time.Microsecond).Seconds() }

// readRecords reads the file of results. It is no error if it is missing.
func readRecords(path string) ([]record, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the results so far: %w", err)
	}
	var all []record
	if err := json.Unmarshal(text, &all); err != nil {
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
		return cmp.Or(cmp.Compare(b.Proxy, a.Proxy), cmp.Compare(a.Endpoints, b.Endpoints), cmp.Compare(a.Services, b.Services), cmp.Compare(a.Cluster, b.Cluster))
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

// perService returns the number of endpoints of each Service, 0 if they differ.
func (r record) perService() int {
	s, err := cluster.ParseShape(r.Cluster)
	if err != nil {
		return 0
	}
	return s.Endpoints
}
