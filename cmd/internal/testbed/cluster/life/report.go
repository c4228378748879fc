package life

import (
	"fmt"
	"time"
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

func (r *Result) verdict() string {
	switch {
	case r.Error != "":
		return "the step failed"
	case r.Different != "":
		return "no"
	case r.Compared:
		return "yes, after " + r.Same.Round(100*time.Millisecond).String()
	default:
		return "removed"
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

// String is the row of LIFE.md, and a line for each kind of error.
func (r *Result) String() string {
	n := r.sums()
	s := fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %d | %s |\n",
		r.Step, n.New, n.Lost, n.Slow, lasting*len(r.Counts), n.Broken, n.Ended, r.verdict())
	for _, c := range r.Counts {
		for _, e := range c.Errors {
			s += fmt.Sprintf("  %s: %d of %d lost, %d broken: %s\n", c.Route, c.Lost, c.New, c.Broken, e)
		}
	}
	return s
}
