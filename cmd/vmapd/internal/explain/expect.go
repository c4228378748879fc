package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
)

// ExitUnexpected is the exit code of an explanation that is not the expected one.
const ExitUnexpected = 2

// Expectation is the expected result of a connection. The zero value expects nothing.
type Expectation struct {
	outcome  report.Outcome
	endpoint string
}

// ParseExpectation reads VERDICT[=ENDPOINT]; "" expects nothing.
func ParseExpectation(s string) (w Expectation, err error) {
	if s == "" {
		return w, nil
	}
	text, endpoint, found := strings.Cut(s, "=")
	w = Expectation{report.Outcome(text), endpoint}
	if text == "not-a-service" {
		w.outcome = report.NotService
	}
	outcomes := []report.Outcome{report.Forwarded, report.Rejected, report.Dropped, report.NotService}
	switch {
	case !slices.Contains(outcomes, w.outcome):
		return w, fmt.Errorf("unknown result %q (forwarded, rejected, dropped, not-a-service)", text)
	case found && (w.outcome != report.Forwarded || endpoint == ""):
		return w, fmt.Errorf("want an endpoint after forwarded=; got %q", s)
	}
	return w, nil
}

// Differs returns how a connection differs from the expectation, or "".
func (w Expectation) Differs(outcome report.Outcome, conclusion string, endpoints []Endpoint) string {
	is := func(u Endpoint) bool {
		addr, _ := netip.ParseAddrPort(u.Address)
		pod := strings.TrimPrefix(w.endpoint, "pod/")
		return w.endpoint == u.Address || w.endpoint == addr.Addr().String() ||
			u.Pod != "" && (pod == u.Pod || strings.HasSuffix(u.Pod, "/"+pod))
	}
	switch {
	case w.outcome == "":
	case w.outcome != outcome:
		return fmt.Sprintf("expected %s, got: %s", w.outcome, conclusion)
	case w.endpoint != "" && !slices.ContainsFunc(endpoints, is):
		return fmt.Sprintf("expected the endpoint %s, got: %s", w.endpoint, conclusion)
	}
	return ""
}
