package life

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Results reads the results in a folder.
func Results(dir string) ([]Result, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []Result
	for _, f := range files {
		var r Result
		text, err := os.ReadFile(f)
		if err == nil {
			err = json.Unmarshal(text, &r)
		}
		if err != nil {
			return nil, fmt.Errorf("read the result %s: %w", f, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// sums are the counts of all routes together.
func (r *Result) sums() (s Count) {
	for _, c := range r.Counts {
		s.New += c.New
		s.Lost += c.Lost
		s.Slow += c.Slow
		s.Broken += c.Broken
		s.Ended += c.Ended
	}
	return s
}

// pageHead says what the table is about.
//
//go:embed page.txt
var pageHead string

// WritePage writes the results of all proxies as a page in Markdown, a row for each step.
func WritePage(w io.Writer, results []Result) {
	by := map[string]map[string]*Result{} // proxy, step
	for i, r := range results {
		if by[r.Proxy] == nil {
			by[r.Proxy] = map[string]*Result{}
		}
		by[r.Proxy][r.Step] = &results[i]
	}
	proxies := slices.Sorted(maps.Keys(by))
	slices.Reverse(proxies) // vmapd first
	head, line := "| Step |", "|---|"
	for _, p := range proxies {
		head += fmt.Sprintf(" %s: connections | lost | delayed | lasting | broken | ended with their pod |", p)
		line += strings.Repeat("--:|", 6)
		if p == VMAPD {
			head += " tables equal | commit |"
			line += "---|---|"
		}
	}
	fmt.Fprintf(w, "%s%s\n%s\n", pageHead, head, line)
	for _, s := range Steps(VMAPD) {
		fmt.Fprintf(w, "| %s |", s.Name)
		for _, p := range proxies {
			fmt.Fprint(w, by[p][s.Name].cells(s.Name, p))
		}
		fmt.Fprintln(w)
	}
}

// cells are those of a row, also if there is no result.
func (r *Result) cells(step, proxy string) (cells string) {
	switch {
	case r != nil:
		n := r.sums()
		cells = fmt.Sprintf(" %d | %d | %d | %d | %d | %d |", n.New, n.Lost, n.Slow, lasting*len(r.Counts), n.Broken, n.Ended)
		if proxy == VMAPD {
			cells += fmt.Sprintf(" %s | %s |", r.verdict(), r.Commit)
		}
		return cells
	case slices.ContainsFunc(Steps(proxy), func(s Step) bool { return s.Name == step }):
		cells = " not run |"
	default:
		cells = " – |"
	}
	cells += strings.Repeat(" |", 5)
	if proxy == VMAPD {
		cells += " | |"
	}
	return cells
}

func (r *Result) verdict() string {
	switch {
	case r.Error != "":
		return "the step failed"
	case r.Different != "":
		return "no"
	case r.Compared:
		return "yes, after " + r.Same.Round(100*time.Millisecond).String()
	default:
		return "yes, and then removed"
	}
}

// Err returns the reason why the step is not as it should be, or nil.
func (r *Result) Err() error {
	lost := r.sums().Lost + r.sums().Broken
	switch {
	case r.Error != "":
		return fmt.Errorf("%s: %s", r.Step, r.Error)
	case r.Different != "":
		return fmt.Errorf("%s: %s", r.Step, r.Different)
	case r.Proxy == VMAPD && lost > 0:
		return fmt.Errorf("%s: %d connections lost", r.Step, lost)
	}
	return nil
}

// String is some lines for people.
func (r *Result) String() string {
	n := r.sums()
	s := fmt.Sprintf("%s, %s: %v; %d connections, %d lost, %d delayed; %d broken, %d ended with their pod; tables: %s\n",
		r.Proxy, r.Step, r.Took.Round(time.Second), n.New, n.Lost, n.Slow, n.Broken, n.Ended, r.verdict())
	for _, c := range r.Counts {
		for _, e := range c.Errors {
			s += fmt.Sprintf("  %s: %d of %d lost, %d broken: %s\n", c.Route, c.Lost, c.New, c.Broken, e)
		}
	}
	return s
}
