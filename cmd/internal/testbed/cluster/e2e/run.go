package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Run has the results of one Service proxy.
type Run struct {
	Proxy      string // "vmapd nftables"
	Kubernetes string // the release of the tests and of the cluster
	Commit     string // of vmapd's source
	Kernel     string
	Nodes      int
	Date       string // of the last test
	Results    map[string]Result
}

// LoadRun reads the file of a run. A run without a file has no results yet.
func LoadRun(name string) (*Run, error) {
	r := &Run{Results: map[string]Result{}}
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(data, r)
	}
	if err != nil {
		return nil, fmt.Errorf("read the run %s: %w", name, err)
	}
	return r, nil
}

// Save writes the file of a run, atomically.
func (r *Run) Save(name string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.WriteFile(name+".new", append(data, '\n'), 0o644)
	}
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		return fmt.Errorf("write the run %s: %w", name, err)
	}
	return nil
}

// Missing returns the tests to run: those without a result and, with again, those that failed or
// were skipped.
func (r *Run) Missing(all []Test, again bool) []Test {
	var todo []Test
	for _, t := range all {
		if got, ok := r.Results[t.Name]; !ok || again && got.Outcome != Passed {
			todo = append(todo, t)
		}
	}
	return todo
}

// add counts a result, unless the test was only skipped before.
func (r *Run) add(test string, got Result) {
	got.Attempts = 1
	if before := r.Results[test]; before.Outcome != Skipped {
		got.Attempts += before.Attempts
	}
	r.Results[test] = got
}
