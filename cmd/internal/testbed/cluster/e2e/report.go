package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
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
	Failure                 struct{ Message string }
}

func (s *spec) name() string {
	return strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " ")
}

// readReport finds the results of some tests in a report of Ginkgo's, which has all tests. The
// result of a test that did not run is a failure if something outside of the tests failed, such as the
// suite's preparation, or if the time was over.
func readReport(r io.Reader, tests []string) (map[string]Result, error) {
	var suites []suite
	if err := json.NewDecoder(r).Decode(&suites); err != nil {
		return nil, fmt.Errorf("read the report: %w", err)
	}
	var outside *spec
	found := map[string]*spec{}
	for _, suite := range suites {
		for i := range suite.SpecReports {
			switch s := &suite.SpecReports[i]; {
			case s.LeafNodeType == "It" && slices.Contains(tests, s.name()):
				found[s.name()] = s
			case s.LeafNodeType != "It" && s.State != "passed" && s.State != "skipped":
				outside = s
			}
		}
	}
	results := map[string]Result{}
	for _, test := range tests {
		s := found[test]
		switch {
		case s == nil:
			return nil, fmt.Errorf("the report has no test %q", test)
		case s.State == "skipped" && outside != nil:
			r := outside.result()
			r.Reason = outside.LeafNodeType + ": " + r.Reason
			results[test] = r
		case s.State == "skipped" && s.Failure.Message == "":
			results[test] = Result{Outcome: Failed, Reason: "it was selected, and did not run"}
		default:
			results[test] = s.result()
		}
	}
	return results, nil
}

func (s *spec) result() Result {
	r := Result{Outcome: Failed, Reason: oneLine(s.Failure.Message)}
	switch s.State {
	case "passed":
		r.Outcome = Passed
	case "skipped", "pending":
		r.Outcome = Skipped
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
