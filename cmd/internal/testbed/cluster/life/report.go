package life

import (
	"fmt"
	"strings"
)

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

// Err returns the reason why the step is not as it should be, or nil.
func (r *Result) Err() error {
	if r.Failure != nil {
		return fmt.Errorf("%s: %w", r.Step, r.Failure)
	}
	if lost := r.sums().Lost + r.sums().Broken; r.Proxy == VMAPD && lost > 0 {
		return fmt.Errorf("%s: %d connections lost", r.Step, lost)
	}
	return nil
}

// String is a row of a table, and a line for each kind of error.
func (r *Result) String() string {
	n := r.sums()
	var s strings.Builder
	fmt.Fprintf(&s, "| %s | %d | %d | %d | %d | %d | %d | %s |\n",
		r.Step, n.New, n.Lost, n.Slow, lasting*len(r.Counts), n.Broken, n.Ended, r.Rules)
	for _, c := range r.Counts {
		for _, e := range c.Errors {
			fmt.Fprintf(&s, "  %s: %d of %d lost, %d broken: %s\n", c.Route, c.Lost, c.New, c.Broken, e)
		}
	}
	return s.String()
}
