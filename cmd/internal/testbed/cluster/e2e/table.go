package e2e

import (
	"fmt"
	"slices"
	"strings"
)

// Table returns the results of some runs, in Markdown. A test that a run has no result for is "not run".
func Table(all []Test, runs []*Run) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| Proxy | pass | FAIL | skipped | not run | vmapd's source | Kubernetes | Kernel | Nodes | Date |\n")
	fmt.Fprintf(&b, "|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range runs {
		n := map[Outcome]int{}
		for _, t := range all {
			n[r.Results[t.Name].Outcome]++
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %s | %s | %s | %d | %s |\n",
			r.Proxy, n[Passed], n[Failed], n[Skipped], n[""], r.Commit, r.Kubernetes, r.Kernel, r.Nodes, r.Date)
	}
	b.WriteString("\n\"try 2\": the test failed at first.\n\n| Test |")
	for _, r := range runs {
		fmt.Fprintf(&b, " %s |", r.Proxy)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(runs)) + "\n")
	for _, t := range all {
		fmt.Fprintf(&b, "| %s", cell(strings.TrimPrefix(t.Name, "[sig-network] ")))
		if t.Nodes > 0 {
			fmt.Fprintf(&b, " (with %d nodes)", t.Nodes)
		}
		b.WriteString(" |")
		for _, r := range runs {
			fmt.Fprintf(&b, " %s |", r.Results[t.Name])
		}
		b.WriteString("\n")
	}
	return b.String()
}

// Behind returns the tests that a run of kube-proxy passed and one of vmapd did not, with the name
// of that run.
func Behind(all []Test, runs []*Run) []string {
	var behind []string
	for _, t := range all {
		for _, r := range runs {
			if !strings.HasPrefix(r.Proxy, "vmapd") || r.Results[t.Name].Outcome == Passed {
				continue
			}
			if slices.ContainsFunc(runs, func(other *Run) bool {
				return strings.HasPrefix(other.Proxy, "kube-proxy") && other.Results[t.Name].Outcome == Passed
			}) {
				behind = append(behind, r.Proxy+": "+t.Name)
			}
		}
	}
	return behind
}

// String returns the cell of a table.
func (r Result) String() string {
	var s string
	switch r.Outcome {
	case "":
		return "not run"
	case Skipped:
		return cell("skipped: " + r.Reason)
	case Passed:
		s = string(Passed)
	default:
		s = cell("**FAIL**: " + r.Reason)
	}
	if r.Attempts > 1 {
		s += fmt.Sprintf(", try %d", r.Attempts)
	}
	return s
}

// cell escapes a text for the cell of a table.
func cell(s string) string { return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(s) }
