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
	verdict, endpoint string
}

// ParseExpectation reads VERDICT[=ENDPOINT]; "" expects nothing.
func ParseExpectation(s string) (w Expectation, err error) {
	if s == "" {
		return w, nil
	}
	var found bool
	w.verdict, w.endpoint, found = strings.Cut(s, "=")
	if w.verdict == "not-a-service" {
		w.verdict = string(report.NotService)
	}
	outcomes := []report.Outcome{report.Forwarded, report.Rejected, report.Dropped, report.NotService}
	switch {
	case !slices.Contains(outcomes, report.Outcome(w.verdict)):
		return w, fmt.Errorf("want forwarded, rejected, dropped or not-a-service; got %q", w.verdict)
	case found && (w.verdict != string(report.Forwarded) || w.endpoint == ""):
		return w, fmt.Errorf("want an endpoint after forwarded=; got %q", s)
	}
	return w, nil
}

// Differs returns how a connection differs from the expectation, or "". The verdict is a report.Outcome, and the
// conclusion the same in words.
func (w Expectation) Differs(verdict, conclusion string, endpoints []Endpoint) string {
	is := func(u Endpoint) bool {
		addr, _ := netip.ParseAddrPort(u.Address)
		pod := strings.TrimPrefix(w.endpoint, "pod/")
		return w.endpoint == u.Address || w.endpoint == addr.Addr().String() ||
			u.Pod != "" && (pod == u.Pod || strings.HasSuffix(u.Pod, "/"+pod))
	}
	switch {
	case w.verdict == "":
	case w.verdict != verdict:
		return fmt.Sprintf("expected %s, got: %s", w.verdict, conclusion)
	case w.endpoint != "" && !slices.ContainsFunc(endpoints, is):
		return fmt.Sprintf("expected the endpoint %s, got: %s", w.endpoint, conclusion)
	}
	return ""
}
