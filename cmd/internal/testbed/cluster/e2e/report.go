package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// Outcome is how a test ended.
type Outcome string

// The outcomes of a test.
const (
	Passed  Outcome = "pass"
	Failed  Outcome = "FAIL"
	Skipped Outcome = "skipped"
)

// Result is the result of one test.
type Result struct {
	Outcome  Outcome
	Seconds  float64
	Reason   string `json:",omitempty"` // of a failure or a skip; one line
	Attempts int    // how often the test was run; the last attempt counts
}

// suite is the part of Ginkgo's JSON report that matters here
// (https://pkg.go.dev/github.com/onsi/ginkgo/v2/types#Report).
type suite struct {
	SpecReports []spec
}

type spec struct {
	ContainerHierarchyTexts []string
	LeafNodeType            string
	LeafNodeText            string
	State                   string
	RunTime                 time.Duration
	Failure                 struct{ Message string }
}

func (s *spec) name() string {
	return strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " ")
}

// readReport finds the result of one test in a report of Ginkgo's, which has all tests. The
// result is a failure if something outside of the test failed, such as the suite's preparation.
func readReport(r io.Reader, test string) (Result, error) {
	var suites []suite
	if err := json.NewDecoder(r).Decode(&suites); err != nil {
		return Result{}, fmt.Errorf("read the report: %w", err)
	}
	var inside, outside *spec
	for _, suite := range suites {
		for i := range suite.SpecReports {
			switch s := &suite.SpecReports[i]; {
			case s.LeafNodeType == "It" && s.name() == test:
				inside = s
			case s.LeafNodeType != "It" && s.State != "passed" && s.State != "skipped":
				outside = s
			}
		}
	}
	switch {
	case inside == nil:
		return Result{}, fmt.Errorf("the report has no test %q", test)
	case outside != nil && inside.State == "skipped":
		r := outside.result()
		r.Reason = outside.LeafNodeType + ": " + r.Reason
		return r, nil
	default:
		return inside.result(), nil
	}
}

func (s *spec) result() Result {
	r := Result{Outcome: Failed, Seconds: s.RunTime.Round(time.Second / 10).Seconds(), Reason: oneLine(s.Failure.Message)}
	switch s.State {
	case "passed":
		r.Outcome = Passed
	case "skipped", "pending":
		r.Outcome = Skipped
		if r.Reason == "" {
			r.Reason = "not selected"
		}
	case "failed":
	default: // timedout, interrupted, panicked, aborted
		r.Reason = strings.TrimSpace(s.State + ": " + r.Reason)
	}
	return r
}

// oneLine shortens a message.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	const limit = 200
	if r := []rune(s); len(r) > limit {
		return string(r[:limit]) + " …"
	}
	return s
}
