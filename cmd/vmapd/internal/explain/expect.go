package explain

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// ExitUnexpected is the exit code of an explanation that is not the expected one.
const ExitUnexpected = 2

// Expectation is the expected result of a connection. The zero value expects nothing.
type Expectation struct {
	verdict, endpoint string
}

// ParseExpectation reads VERDICT[=ENDPOINT]; "" expects nothing.
func ParseExpectation(s string) (Expectation, error) {
	if s == "" {
		return Expectation{}, nil
	}
	verdict, endpoint, found := strings.Cut(s, "=")
	if verdict == "not-a-service" {
		verdict = "notService"
	}
	switch {
	case !slices.Contains(slices.Collect(maps.Keys(verdictWords)), verdict):
		return Expectation{}, fmt.Errorf("want forwarded, rejected, dropped or not-a-service; got %q", verdict)
	case found && (verdict != "forwarded" || endpoint == ""):
		return Expectation{}, fmt.Errorf("want an endpoint after forwarded=; got %q", s)
	}
	return Expectation{verdict, endpoint}, nil
}

// Differs returns how a connection differs from the expectation, or "". The verdict is as that of an
// Explanation, and the conclusion is the same in words.
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
		return fmt.Sprintf("expected %s, got: %s", verdictWords[w.verdict], conclusion)
	case w.endpoint != "" && !slices.ContainsFunc(endpoints, is):
		return fmt.Sprintf("expected the endpoint %s, got: %s", w.endpoint, conclusion)
	}
	return ""
}
