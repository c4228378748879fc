package explain

import (
	"fmt"
	"slices"
	"strings"
)

// ExitUnexpected is the exit code of an explanation that is not the expected one.
const ExitUnexpected = 2

// Expectation is the expected result of a connection. The zero value expects nothing.
type Expectation struct {
	verdict, endpoint string
}

// expectable are the verdicts as people write them.
var expectable = map[string]string{
	"forwarded": "forwarded", "refused": "rejected", "rejected": "rejected", "dropped": "dropped", "unhandled": "notOurs",
}

// ParseExpectation reads VERDICT[=ENDPOINT]; "" expects nothing.
func ParseExpectation(s string) (Expectation, error) {
	if s == "" {
		return Expectation{}, nil
	}
	verdict, endpoint, found := strings.Cut(s, "=")
	w := Expectation{expectable[strings.ToLower(verdict)], endpoint}
	switch {
	case w.verdict == "":
		return w, fmt.Errorf("want forwarded, refused, dropped or unhandled; got %q", verdict)
	case found && (w.verdict != "forwarded" || endpoint == ""):
		return w, fmt.Errorf("want an endpoint after forwarded=; got %q", s)
	}
	return w, nil
}

// Differs returns how an explanation differs from the expectation, or "".
func (w Expectation) Differs(e Explanation) string {
	if w.verdict == "forwarded" && e.Verdict == w.verdict && e.Probe != nil && e.Probe.Destination.Result != AnswerConnected {
		return "expected is that the connection is forwarded, but the probe's is: " + e.sayAnswer(e.Probe.Destination, false)
	}
	var used []Endpoint
	if e.Endpoints != nil {
		used = e.Endpoints.Used
	}
	return w.DiffersFrom(e.Verdict, e.Conclusion, used)
}

// DiffersFrom returns how a connection differs from the expectation, or "". The verdict is as that of an
// Explanation, and the conclusion is the same in words.
func (w Expectation) DiffersFrom(verdict, conclusion string, endpoints []Endpoint) string {
	is := func(u Endpoint) bool {
		host, _, _ := strings.Cut(u.Address, ":")
		if strings.HasPrefix(u.Address, "[") {
			host, _, _ = strings.Cut(u.Address[1:], "]")
		}
		pod := strings.TrimPrefix(w.endpoint, "pod/")
		return w.endpoint == u.Address || w.endpoint == host || u.Pod != "" && (pod == u.Pod || strings.HasSuffix(u.Pod, "/"+pod))
	}
	switch {
	case w.verdict == "":
	case w.verdict != verdict:
		for word, verdict := range map[string]string{"forwarded": "forwarded", "refused": "rejected", "dropped": "dropped", "not handled": "notOurs"} {
			if verdict == w.verdict {
				return fmt.Sprintf("expected is that the connection is %s, but it is %s", word, conclusion)
			}
		}
	case w.endpoint != "" && !slices.ContainsFunc(endpoints, is):
		return fmt.Sprintf("expected is the endpoint %s, but the connection is %s", w.endpoint, conclusion)
	}
	return ""
}
