package life

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
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
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		var r Result
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("read the result %s: %w", f, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// sums are the counts of all routes together.
type sums struct{ made, lost, slow, lasted, broken, ended int }

func (r *Result) sums() sums {
	var s sums
	for _, c := range r.Counts {
		s.made += c.New
		s.lost += c.Lost
		s.slow += c.Slow
		s.lasted += lasting
		s.broken += c.Broken
		s.ended += c.Ended
	}
	return s
}

// Lost returns the number of connections that failed.
func (r *Result) Lost() int { s := r.sums(); return s.lost + s.broken }

// WriteTable writes the results of all proxies, a row for each step.
func WriteTable(w io.Writer, results []Result) {
	proxies := []string{}
	by := map[[2]string]Result{}
	for _, r := range results {
		by[[2]string{r.Step, r.Proxy}] = r
		if !slices.Contains(proxies, r.Proxy) {
			proxies = append(proxies, r.Proxy)
		}
	}
	// vmapd first.
	slices.SortFunc(proxies, func(a, b string) int {
		return cmp.Or(strings.Compare(fmt.Sprint(a != VMAPD), fmt.Sprint(b != VMAPD)), strings.Compare(a, b))
	})
	fmt.Fprintf(w, "| Step |")
	for _, p := range proxies {
		fmt.Fprintf(w, " %s: connections | lost | delayed | lasting | broken | ended with their pod |", p)
		if p == VMAPD {
			fmt.Fprintf(w, " tables equal | commit |")
		}
	}
	fmt.Fprintf(w, "\n|---|")
	for _, p := range proxies {
		fmt.Fprintf(w, "%s", strings.Repeat("--:|", 6))
		if p == VMAPD {
			fmt.Fprintf(w, "---|---|")
		}
	}
	fmt.Fprintln(w)
	for _, s := range Steps(VMAPD) {
		fmt.Fprintf(w, "| %s |", s.Name)
		for _, p := range proxies {
			r, ok := by[[2]string{s.Name, p}]
			if !ok {
				fmt.Fprintf(w, " %s", missing(s, p)+" |"+strings.Repeat(" |", 5))
			} else {
				n := r.sums()
				fmt.Fprintf(w, " %d | %d | %d | %d | %d | %d |", n.made, n.lost, n.slow, n.lasted, n.broken, n.ended)
			}
			if p == VMAPD {
				fmt.Fprintf(w, " %s | %s |", r.verdict(ok), r.Commit)
			}
		}
		fmt.Fprintln(w)
	}
}

// missing says why there is no result.
func missing(s Step, proxy string) string {
	if !slices.ContainsFunc(Steps(proxy), func(o Step) bool { return o.Name == s.Name }) {
		return "–"
	}
	return "not run"
}

func (r *Result) verdict(ok bool) string {
	switch {
	case !ok:
		return ""
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
	switch {
	case r.Error != "":
		return fmt.Errorf("%s: %s", r.Step, r.Error)
	case r.Different != "":
		return fmt.Errorf("%s: %s", r.Step, r.Different)
	case r.Proxy == VMAPD && r.Lost() > 0:
		return fmt.Errorf("%s: %d connections lost", r.Step, r.Lost())
	}
	return nil
}

// String is some lines for people.
func (r *Result) String() string {
	var s strings.Builder
	n := r.sums()
	fmt.Fprintf(&s, "%s, %s: %v; %d connections, %d lost, %d delayed; %d lasting, %d broken, %d ended with their pod; tables: %s\n",
		r.Proxy, r.Step, r.Took.Round(time.Second), n.made, n.lost, n.slow, n.lasted, n.broken, n.ended, r.verdict(true))
	for _, c := range r.Counts {
		for _, e := range c.Errors {
			fmt.Fprintf(&s, "  %s: %d of %d lost, %d broken, after %.1f to %.1f s: %s\n",
				c.Route, c.Lost, c.New, c.Broken, c.From.Seconds(), c.Until.Seconds(), e)
		}
	}
	return s.String()
}

// WritePage writes the results as a page in Markdown.
func WritePage(w io.Writer, results []Result) {
	fmt.Fprintf(w, "%s", pageHead)
	WriteTable(w, results)
}

// pageHead says what the table is about.
//
//go:embed page.txt
var pageHead string
